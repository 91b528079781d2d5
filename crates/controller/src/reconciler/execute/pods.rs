//! Evicting and deleting the pods of a Node. Each pod is handled by itself.

use fivespot_planner::drain;
use fivespot_planner::plan::PodKey;
use fivespot_planner::status::BlockedEviction;
use fivespot_validation::names::is_dns_subdomain;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::core::{Request, Status};
use kube::{Resource as _, ResourceExt as _};
use tracing::{debug, info, warn};

use crate::clusters::WorkloadClient;
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::observe::pods_on_node;
use crate::reconciler::write::delete_uid;
use crate::runtime::request::{Operation, RequestError};

const MAX_CONCURRENT_PODS: usize = 16;
/// Cause in the API server's response if a PodDisruptionBudget blocks an eviction.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

enum Eviction {
    Accepted,
    /// The pod no longer exists, or another one has its name.
    Gone,
    Blocked(BlockedEviction),
}

impl Scope<'_> {
    /// Evicts pods, respecting their PodDisruptionBudgets. A blocked eviction is reported and retried, not a failure.
    pub(super) async fn evict_pods(&mut self, pods: &[PodKey]) -> Result<(), ReconcileError> {
        let Some((client, _)) = self.node()? else { return Ok(()) };
        let results: Vec<(&PodKey, Result<Eviction, ReconcileError>)> = {
            let (this, client) = (&*self, &client);
            let evictions: Vec<_> =
                pods.iter().map(|pod| this.evict_pod(client, pod).map(move |it| (pod, it)).boxed()).collect();
            futures::stream::iter(evictions).buffer_unordered(MAX_CONCURRENT_PODS).collect().await
        };
        // A drain polls; a blocked pod is worth a warning only once.
        let is_first_attempt = self.observed.stored.shutdown_started_at.is_none();
        let mut failure = None;
        for (pod, result) in results {
            let pod = format!("{}/{}", pod.namespace, pod.name);
            let label = match result {
                Ok(Eviction::Accepted) => {
                    debug!(pod, "Evicted pod");
                    "evicted"
                }
                Ok(Eviction::Gone) => "gone",
                Ok(Eviction::Blocked(blocked)) => {
                    let pdb = blocked.budget.as_deref().unwrap_or_default();
                    if is_first_attempt {
                        warn!(pod, pdb, "Eviction blocked by PodDisruptionBudget");
                    } else {
                        debug!(pod, pdb, "Eviction blocked by PodDisruptionBudget");
                    }
                    self.outcome.blocked_evictions.push(blocked);
                    "blocked"
                }
                Err(error) => {
                    failure = Some(error);
                    "failed"
                }
            };
            self.context.metrics.record_eviction(label);
        }
        failure.map_or(Ok(()), Err)
    }

    async fn evict_pod(&self, client: &WorkloadClient, pod: &PodKey) -> Result<Eviction, ReconcileError> {
        let operation = Operation::new("evict", format!("pod {}/{}", pod.namespace, pod.name));
        let params = EvictParams { delete_options: Some(delete_uid(&pod.uid)), ..EvictParams::default() };
        let request = client.request(requests(pod).evict(&pod.name, &params));
        match self.write_to_workload(client, operation, request).await {
            Ok(()) => Ok(Eviction::Accepted),
            Err(error) => match error.request().and_then(RequestError::status) {
                Some(status) if status.code == 404 || status.code == 409 => Ok(Eviction::Gone),
                Some(status) if is_blocked(status) => Ok(Eviction::Blocked(BlockedEviction {
                    namespace: pod.namespace.clone(),
                    budget: budget_name(status),
                })),
                Some(_) | None => Err(error),
            },
        }
    }

    /// Deletes pods with grace period 0, regardless of PodDisruptionBudgets.
    pub(super) async fn delete_pods(&self, pods: &[PodKey]) -> Result<(), ReconcileError> {
        let Some((client, node)) = self.node()? else { return Ok(()) };
        let deletions: Vec<_> = pods.iter().map(|pod| self.delete_pod(&client, pod).boxed()).collect();
        let results: Vec<_> = futures::stream::iter(deletions).buffer_unordered(MAX_CONCURRENT_PODS).collect().await;
        info!(node = node.name, pods = pods.len(), "Deleted pods with grace period 0");
        results.into_iter().collect()
    }

    /// Lists the pods of the Node and deletes them.
    pub(super) async fn delete_all_pods(&self) -> Result<(), ReconcileError> {
        let Some((client, node)) = self.node()? else { return Ok(()) };
        let key = |pod: &Pod| PodKey {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        };
        let pods = pods_on_node(&client, &node.name, |pod| drain::is_force_deleted(pod).then(|| key(pod))).await?;
        self.delete_pods(&pods).await
    }

    async fn delete_pod(&self, client: &WorkloadClient, pod: &PodKey) -> Result<(), ReconcileError> {
        let operation = Operation::new("delete", format!("pod {}/{}", pod.namespace, pod.name));
        let params = DeleteParams { grace_period_seconds: Some(0), ..delete_uid(&pod.uid) };
        let request = client.request(requests(pod).delete(&pod.name, &params));
        match self.write_to_workload(client, operation, request).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() || error.request().is_some_and(RequestError::is_conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether a PodDisruptionBudget blocks the eviction. For a pod with two budgets the API server returns 500.
fn is_blocked(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let by_budget = causes.into_iter().any(|cause| cause.reason == DISRUPTION_BUDGET);
    (status.code == 429 && by_budget) || (status.code == 500 && status.message.contains("PodDisruptionBudget"))
}

fn requests(pod: &PodKey) -> Request {
    Request::new(Pod::url_path(&(), Some(&pod.namespace)))
}

/// Name of the budget, from the message of the cause. It ends up in the status, so nothing but a name is accepted from the
/// server.
fn budget_name(status: &Status) -> Option<String> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let message = causes.into_iter().find(|cause| cause.reason == DISRUPTION_BUDGET).map(|cause| &cause.message)?;
    let rest = message.strip_prefix("The disruption budget ")?;
    rest.split_whitespace().next().filter(|name| is_dns_subdomain(name)).map(str::to_owned)
}
