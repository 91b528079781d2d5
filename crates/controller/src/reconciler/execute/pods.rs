//! Evicting and deleting the pods of a Node. Each pod is handled by itself: one that the API server rejects is reported and
//! tried again with the next reconcile, and delays no other.

use std::collections::BTreeMap;

use fivespot_planner::drain;
use fivespot_planner::plan::PodKey;
use fivespot_planner::status::{RejectedPod, Rejection, describe_rejected_pods};
use fivespot_validation::names::is_dns_subdomain;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::core::{Request, Status, request};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::clusters::WorkloadClient;
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::observe::pods_on_node;
use crate::reconciler::write::delete_uid;
use crate::runtime::request::{Operation, RequestError, WORKLOAD_TIMEOUT};

/// Requests about pods of one namespace that one drain has in flight, and the number of such namespaces. All drains of a
/// cluster together are limited by the cluster's permits.
const MAX_CONCURRENT_PODS: usize = 3;
const MAX_CONCURRENT_NAMESPACES: usize = 4;
/// Cause in the API server's response if a PodDisruptionBudget blocks an eviction.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";
/// Cause in the API server's response if it accepts no new objects, evictions included, because the namespace is terminating.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// What became of one pod.
enum PodResult {
    Accepted,
    /// The pod no longer exists, or another one has its name.
    Gone,
    Rejected(Rejection),
}

impl Scope<'_> {
    /// Evicts pods, respecting their PodDisruptionBudgets, and returns those that are rejected. Fails only if the API server
    /// does not respond at all.
    pub(super) async fn evict_pods(&self, pods: &[PodKey]) -> Result<Vec<RejectedPod>, ReconcileError> {
        let Some((client, node)) = self.node()? else { return Ok(Vec::new()) };
        let results = for_each_pod(pods, |pod, until| self.evict_pod(&client, pod, until).boxed()).await;
        let label = |result: &PodResult| match result {
            PodResult::Accepted => "evicted",
            PodResult::Gone => "gone",
            PodResult::Rejected(Rejection::Blocked { .. } | Rejection::NamespaceTerminating) => "blocked",
            PodResult::Rejected(Rejection::Eviction { .. } | Rejection::Deletion { .. }) => "failed",
        };
        for (_, result) in &results {
            self.context.metrics.record_eviction(result.as_ref().map_or("failed", label));
        }
        let rejected = rejected_pods(&client, &node.name, results, &Rejection::Eviction { code: None }).await?;
        // A drain polls; rejected evictions are worth a warning only once, and one line for all pods.
        if let Some(causes) = describe_rejected_pods(&rejected) {
            let node = &node.name;
            if self.observed.stored.shutdown_started_at.is_none() && self.allows_log("evict") {
                warn!(node, causes, "Evictions rejected");
            } else {
                debug!(node, causes, "Evictions rejected");
            }
        }
        Ok(rejected)
    }

    async fn evict_pod(
        &self,
        client: &WorkloadClient,
        pod: &PodKey,
        until: Instant,
    ) -> Result<PodResult, ReconcileError> {
        let operation = Operation::new("evict", format!("pod {}/{}", pod.namespace, pod.name));
        let _permit = client.pod_permit(&pod.namespace, until, &operation).await?;
        let request = client.request(eviction(pod));
        pod_result(self.write_for_pod(client, operation, request).await, |status| {
            if is_blocked(status) {
                Rejection::Blocked { budget: budget_name(status) }
            } else if status.code == 403 && cause_message(status, NAMESPACE_TERMINATING).is_some() {
                Rejection::NamespaceTerminating
            } else {
                Rejection::Eviction { code: Some(status.code) }
            }
        })
    }

    /// Deletes pods with grace period 0, regardless of PodDisruptionBudgets, and returns those that are rejected. Fails only
    /// if the API server does not respond at all.
    pub(super) async fn delete_pods(&self, pods: &[PodKey]) -> Result<Vec<RejectedPod>, ReconcileError> {
        let Some((client, node)) = self.node()? else { return Ok(Vec::new()) };
        let results = for_each_pod(pods, |pod, until| self.delete_pod(&client, pod, until).boxed()).await;
        let rejected = rejected_pods(&client, &node.name, results, &Rejection::Deletion { code: None }).await?;
        let deleted = pods.len() - rejected.len();
        if self.allows_log("delete pods") {
            info!(node = node.name, pods = deleted, rejected = rejected.len(), "Deleted pods with grace period 0");
        }
        Ok(rejected)
    }

    /// Lists the pods of the Node and deletes them.
    pub(super) async fn delete_all_pods(&self) -> Result<Vec<RejectedPod>, ReconcileError> {
        let Some((client, node)) = self.node()? else { return Ok(Vec::new()) };
        let key = |pod: &Pod| PodKey {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        };
        let pods = pods_on_node(&client, &node.name, |pod| drain::is_force_deleted(pod).then(|| key(pod))).await?;
        self.delete_pods(&pods).await
    }

    async fn delete_pod(
        &self,
        client: &WorkloadClient,
        pod: &PodKey,
        until: Instant,
    ) -> Result<PodResult, ReconcileError> {
        let operation = Operation::new("delete", format!("pod {}/{}", pod.namespace, pod.name));
        let _permit = client.pod_permit(&pod.namespace, until, &operation).await?;
        let params = DeleteParams { grace_period_seconds: Some(0), ..delete_uid(&pod.uid) };
        let request = client.request(requests(pod).delete(&pod.name, &params));
        pod_result(self.write_for_pod(client, operation, request).await, |status| Rejection::Deletion {
            code: Some(status.code),
        })
    }
}

/// Sends a request for each pod, a few at a time. An admission webhook of one namespace may hang, so no namespace waits for
/// another, and nothing more is sent when this has taken as long as one request may. The namespaces are in random order, so
/// that none is always the last.
async fn for_each_pod<'p>(
    pods: &'p [PodKey],
    send: impl Fn(&'p PodKey, Instant) -> BoxFuture<'p, Result<PodResult, ReconcileError>> + Sync,
) -> Vec<(&'p PodKey, Result<PodResult, ReconcileError>)> {
    let until = Instant::now() + WORKLOAD_TIMEOUT;
    let mut by_namespace: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, pod) in pods.iter().enumerate() {
        by_namespace.entry(&pod.namespace).or_default().push(index);
    }
    let mut namespaces: Vec<_> = by_namespace.into_values().collect();
    fastrand::shuffle(&mut namespaces);
    let send = &send;
    let send_one = |index: usize| async move {
        let pod = &pods[index];
        if Instant::now() < until {
            return (index, send(pod, until).await);
        }
        let operation = Operation::new("send a request about", format!("pod {}/{}", pod.namespace, pod.name));
        (index, Err(RequestError::Timeout { operation, limit: WORKLOAD_TIMEOUT }.into()))
    };
    // A future is created when it is polled, so that a Node with thousands of pods does not have as many.
    let namespaces = futures::stream::iter(namespaces).map(|indexes| {
        let requests = futures::stream::iter(indexes).map(send_one).buffer_unordered(MAX_CONCURRENT_PODS);
        requests.collect::<Vec<_>>()
    });
    let results: Vec<Vec<_>> = namespaces.buffer_unordered(MAX_CONCURRENT_NAMESPACES).collect().await;
    results.into_iter().flatten().map(|(index, result)| (&pods[index], result)).collect()
}

/// A response is about one pod.
fn pod_result(
    result: Result<(), ReconcileError>,
    rejection: impl FnOnce(&Status) -> Rejection,
) -> Result<PodResult, ReconcileError> {
    let Err(error) = result else { return Ok(PodResult::Accepted) };
    match error.request().and_then(RequestError::status) {
        Some(status) if status.code == 404 || status.code == 409 => Ok(PodResult::Gone),
        Some(status) => Ok(PodResult::Rejected(rejection(status))),
        None => Err(error),
    }
}

/// The pods that were rejected. A pod without response is one of them if the API server responds to anything else: an
/// admission webhook of the pod's namespace may hang.
async fn rejected_pods(
    client: &WorkloadClient,
    node: &str,
    results: Vec<(&PodKey, Result<PodResult, ReconcileError>)>,
    no_response: &Rejection,
) -> Result<Vec<RejectedPod>, ReconcileError> {
    let mut rejected = Vec::new();
    let mut responds = results.iter().any(|(_, result)| result.is_ok());
    for (pod, result) in results {
        let cause = match result {
            Ok(PodResult::Rejected(cause)) => cause,
            Ok(PodResult::Accepted | PodResult::Gone) => continue,
            Err(error) if error.request().is_none() || error.is_superseded() => return Err(error),
            Err(_) => {
                if !responds {
                    check_connection(client, node).await?;
                    responds = true;
                }
                no_response.clone()
            }
        };
        rejected.push(RejectedPod { namespace: pod.namespace.clone(), name: pod.name.clone(), cause });
    }
    Ok(rejected)
}

/// Fails, and gives the connection up, if the API server does not respond.
async fn check_connection(client: &WorkloadClient, node: &str) -> Result<(), ReconcileError> {
    match client.send(Operation::new("read", format!("Node {node}")), client.get_node(node)).await {
        Err(error) if error.status().is_none() && !error.is_violation() => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether a PodDisruptionBudget blocks the eviction. For a pod with two budgets the API server returns 500.
fn is_blocked(status: &Status) -> bool {
    let by_budget = cause_message(status, DISRUPTION_BUDGET).is_some();
    (status.code == 429 && by_budget) || (status.code == 500 && status.message.contains("PodDisruptionBudget"))
}

fn requests(pod: &PodKey) -> Request {
    Request::new(Pod::url_path(&(), Some(&pod.namespace)))
}

/// Evicts the pod with this uid, not one that replaced it. `Request::evict` of kube misspells the field of the precondition,
/// and the API server ignores it.
fn eviction(pod: &PodKey) -> Result<http::Request<Vec<u8>>, request::Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    requests(pod).create_subresource("eviction", &pod.name, &PostParams::default(), body.to_string().into_bytes())
}

/// Name of the budget, from the message of the cause. It ends up in the status, so nothing but a name is accepted from the
/// server.
fn budget_name(status: &Status) -> Option<String> {
    let rest = cause_message(status, DISRUPTION_BUDGET)?.strip_prefix("The disruption budget ")?;
    rest.split_whitespace().next().filter(|name| is_dns_subdomain(name)).map(str::to_owned)
}

/// Message of the cause with this reason.
fn cause_message<'a>(status: &'a Status, reason: &str) -> Option<&'a str> {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.find(|cause| cause.reason == reason).map(|cause| cause.message.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::policy::v1::Eviction;

    use super::*;

    fn pods(namespace: &str, count: usize) -> Vec<PodKey> {
        let pod = |it: usize| PodKey { namespace: namespace.to_owned(), name: it.to_string(), uid: it.to_string() };
        (0..count).map(pod).collect()
    }

    #[test]
    fn eviction_names_the_uid() {
        let request = eviction(&pods("team", 1)[0]).unwrap();
        assert_eq!(request.uri().path(), "/api/v1/namespaces/team/pods/0/eviction");
        let eviction: Eviction = serde_json::from_slice(request.body()).unwrap();
        let preconditions = eviction.delete_options.and_then(|options| options.preconditions);
        assert_eq!(preconditions.and_then(|it| it.uid).as_deref(), Some("0"));
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_namespace_delays_no_other() {
        let pods = [pods("hanging", 400), pods("other", 20)].concat();
        let (started, longest) = (Instant::now(), parking_lot::Mutex::new(Duration::ZERO));
        let results = for_each_pod(&pods, |pod, _| {
            let longest = &longest;
            async move {
                if pod.namespace == "hanging" {
                    tokio::time::sleep(WORKLOAD_TIMEOUT).await;
                } else {
                    *longest.lock() = started.elapsed();
                }
                Ok(PodResult::Accepted)
            }
            .boxed()
        });
        let results = results.await;
        assert_eq!(results.len(), 420);
        assert!(results.iter().all(|(pod, result)| result.is_ok() || pod.namespace == "hanging"));
        assert_eq!(*longest.lock(), Duration::ZERO);
        assert!(started.elapsed() <= 2 * WORKLOAD_TIMEOUT, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn many_hanging_namespaces_take_no_longer_than_one() {
        let pods: Vec<PodKey> = (0..400).flat_map(|it| pods(&format!("ns-{it}"), 5)).collect();
        let started = Instant::now();
        let results = for_each_pod(&pods, |_, _| {
            async {
                tokio::time::sleep(WORKLOAD_TIMEOUT).await;
                Ok(PodResult::Accepted)
            }
            .boxed()
        });
        assert_eq!(results.await.len(), pods.len());
        assert!(started.elapsed() <= 2 * WORKLOAD_TIMEOUT, "{:?}", started.elapsed());
    }
}
