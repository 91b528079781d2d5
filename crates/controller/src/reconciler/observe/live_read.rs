//! Reads from API servers that a decision depends on.

use fivespot_planner::children::ChildNames;
use fivespot_planner::drain::{self, Kubelet};
use fivespot_planner::observed::{self, Absence, Child, Node, NodePod, Pods, ProviderChild, Ref};
use fivespot_planner::plan::NeedsRead;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, ListParams};
use kube::core::Request;
use kube::{Api, Resource as _, ResourceExt as _};

use super::{machine_child, node};
use crate::capi::{DiscoveryError, Machine, ProviderObjectMeta};
use crate::clusters::{PAGE_SIZE, Page, WorkloadClient, WorkloadPod, complete};
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, RequestError, send};

/// Pods are listed in pages, and a list that does not end is given up.
const MAX_PODS: usize = 2500;
/// Requests for one list: its pages, and the pods of some that are listed one by one.
const MAX_REQUESTS: usize = 250;

/// Reads what the decision depends on into the scope's observation.
pub(in crate::reconciler) async fn live_read(scope: &mut Scope<'_>, read: NeedsRead) -> Result<(), ReconcileError> {
    match read {
        NeedsRead::Children => {
            read_machine(scope).await?;
            read_provider_objects(scope).await
        }
        NeedsRead::Machine => read_machine(scope).await,
        NeedsRead::Node => read_node(scope).await,
        NeedsRead::Pods => read_pods(scope).await,
    }
}

async fn read_machine(scope: &mut Scope<'_>) -> Result<(), ReconcileError> {
    let (context, key) = (scope.context, scope.key);
    let name = ChildNames::of(&key.name).machine;
    let machines: Api<Machine> = Api::namespaced_with(context.client.clone(), &key.namespace, &context.served.machines);
    let operation = Operation::new("read", format!("Machine {name}"));
    let Some(machine) = send(MANAGEMENT_TIMEOUT, operation, machines.get_opt(&name)).await? else {
        scope.observed.machine = Child::Absent;
        scope.observed.node = Node::Absent(Absence::NotJoined);
        return Ok(());
    };
    let child = match machine_child(&machine, &scope.object.uid().unwrap_or_default()) {
        Child::Managed(managed) => Child::Managed(observed::Machine { live: true, ..managed }),
        other => other,
    };
    let managed = Some(&machine).filter(|_| child.managed().is_some());
    scope.observed.node = node::observe(context, key, &scope.object, managed);
    scope.observed.machine = child;
    context.machines.apply_read(machine);
    Ok(())
}

async fn read_provider_objects(scope: &mut Scope<'_>) -> Result<(), ReconcileError> {
    let Some(refs) = scope.observed.stored.refs.clone() else { return Ok(()) };
    scope.observed.bootstrap = read_provider_object(scope, &refs.bootstrap).await?;
    scope.observed.infrastructure = read_provider_object(scope, &refs.infrastructure).await?;
    Ok(())
}

async fn read_provider_object(scope: &Scope<'_>, reference: &Ref) -> Result<Child<ProviderChild>, ReconcileError> {
    let Some(resource) = resolve(scope, reference).await? else { return Ok(Child::Absent) };
    let mut found = get_metadata(scope, reference, &resource).await;
    // This version may no longer be served while another one is. The API server then does not name the object.
    if found.as_ref().is_err_and(|error| error.is_not_found() && !error.is_about(&reference.name)) {
        scope.context.kinds.forget(&Ref { api_version: resource.api_version.clone(), ..reference.clone() });
        match resolve(scope, reference).await? {
            Some(served) if served.version != resource.version => {
                found = get_metadata(scope, reference, &served).await;
            }
            Some(_) => {}
            None => return Ok(Child::Absent),
        }
    }
    let object = match found {
        Err(error) if error.is_not_found() => return Ok(Child::Absent),
        found => found?,
    };
    if !object.ownership.is_owned_by(&scope.object.uid().unwrap_or_default()) {
        return Ok(Child::Unmanaged(object.uid().unwrap_or_default()));
    }
    Ok(Child::Managed(ProviderChild {
        uid: object.uid().unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        adopted_by: object.ownership.adopted_by(),
        fingerprint: object.ownership.fingerprint,
    }))
}

async fn get_metadata(
    scope: &Scope<'_>,
    reference: &Ref,
    resource: &ApiResource,
) -> Result<ProviderObjectMeta, RequestError> {
    let objects: Api<ProviderObjectMeta> =
        Api::namespaced_with(scope.context.client.clone(), &scope.key.namespace, resource);
    let operation = Operation::new("read", format!("{} {}", reference.kind, reference.name));
    send(MANAGEMENT_TIMEOUT, operation, objects.get(&reference.name)).await
}

/// Resolves a kind. If it is not served, there is no object of it.
async fn resolve(scope: &Scope<'_>, reference: &Ref) -> Result<Option<ApiResource>, ReconcileError> {
    match scope.context.kinds.resolve_any_version(reference).await {
        Ok(resource) => Ok(Some(resource)),
        Err(DiscoveryError::KindNotFound { .. }) => Ok(None),
        Err(error @ DiscoveryError::Request(_)) => Err(error.into()),
    }
}

/// Confirms that the Node does not exist. A cluster that does not respond is unreachable, which is not an absence.
async fn read_node(scope: &mut Scope<'_>) -> Result<(), ReconcileError> {
    let (context, key) = (scope.context, scope.key);
    let machine = context.machines.get(key);
    let name = scope.observed.machine.managed().and_then(|machine| machine.node.clone());
    let (Some(machine), Some(name), Some(client)) = (machine, name, context.workload_clusters.client_for(key)) else {
        scope.observed.node = Node::Connecting;
        return Ok(());
    };
    let operation = Operation::new("read", format!("Node {name}"));
    scope.observed.node = match client.send(operation, client.get_node(&name)).await {
        Ok(Some(found)) => {
            let node = node::identify(context, key, &scope.object, &machine, &found);
            client.apply_read(found);
            node
        }
        // Without a kubeconfig the Node may be in a cluster that the controller does not know.
        Ok(None) => match client.missing_kubeconfig() {
            Some(secret) => Node::Unidentified(Absence::NoKubeconfig { name, secret: secret.to_string() }),
            None => Node::Absent(Absence::NotFound { name }),
        },
        Err(error) if error.is_superseded() => return Err(error.into()),
        Err(error) => Node::Unreachable(error.to_string()),
    };
    Ok(())
}

async fn read_pods(scope: &mut Scope<'_>) -> Result<(), ReconcileError> {
    let (context, key) = (scope.context, scope.key);
    let client = context.workload_clusters.client_for(key);
    let (Some(node), Some(client)) = (scope.observed.node.managed(), client) else {
        scope.observed.node = Node::Connecting;
        return Ok(());
    };
    let is_silent = context.workload_clusters.kubelet_is_silent(key, &node.name);
    let kubelet = if is_silent { Kubelet::Unresponsive } else { Kubelet::Responding };
    match pods_on_node(&client, &node.name, |pod| Some(node_pod(pod, kubelet))).await {
        Ok(pods) => scope.observed.pods = Pods::Read(pods),
        Err(error) if error.is_superseded() => return Err(error),
        Err(error) => scope.observed.node = Node::Unreachable(error.to_string()),
    }
    Ok(())
}

/// Lists the pods of a Node. Only what `convert` returns is kept.
pub(in crate::reconciler) async fn pods_on_node<T>(
    client: &WorkloadClient,
    node: &str,
    convert: impl Fn(&Pod) -> Option<T>,
) -> Result<Vec<T>, ReconcileError> {
    let (mut found, mut count) = (Vec::new(), 0);
    let mut token = None;
    // Pods of a page that is too large, which are listed one by one.
    let mut single = 0;
    // A page may be empty although it is not the last.
    for _ in 0..MAX_REQUESTS {
        let operation = Operation::new("list", format!("pods of Node {node}"));
        let limit = if single > 0 { 1 } else { PAGE_SIZE };
        let page = match client.send(operation, list_pods(client, node, limit, token.clone())).await {
            Err(error) if error.is_too_large() && single == 0 => {
                single = PAGE_SIZE;
                continue;
            }
            page => page?,
        };
        single = single.saturating_sub(1);
        count += page.items.0.len();
        if count > MAX_PODS {
            break;
        }
        found.extend(page.items.0.iter().filter_map(|WorkloadPod(pod)| convert(pod)));
        token = page.metadata.r#continue.map(|token| token.0).filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
    Err(ReconcileError::TooManyPods { node: node.to_owned(), limit: MAX_PODS })
}

/// Lists pods that have not finished, without spec and status: an author of pods can make both large.
async fn list_pods(
    client: &WorkloadClient,
    node: &str,
    limit: u32,
    token: Option<String>,
) -> Result<Page<WorkloadPod>, kube::Error> {
    let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let mut params = ListParams::default().fields(&fields).limit(limit);
    params.continue_token = token;
    let request = Request::new(Pod::url_path(&(), None)).list_metadata(&params).map_err(kube::Error::BuildRequest)?;
    let text = client.client().request_text(request).await?;
    decode_pods(&text, limit).map_err(kube::Error::SerdeError)
}

/// Decodes a page. That of a single pod may be cut off: what identifies the pod is complete.
fn decode_pods(text: &str, limit: u32) -> Result<Page<WorkloadPod>, serde_json::Error> {
    let page = serde_json::from_str(text);
    if limit == 1 { page.or_else(|_| serde_json::from_str(&complete(text))) } else { page }
}

fn node_pod(pod: &Pod, kubelet: Kubelet) -> NodePod {
    let is_force_deleted =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    NodePod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        drain: drain::classify(pod, kubelet),
        force_delete: drain::is_force_deleted(pod) && !is_force_deleted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_whose_response_is_cut_off_is_identified() {
        let owners =
            vec![json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "<".repeat(1000), "uid": "b" }); 2000];
        let metadata = json!({ "resourceVersion": "7", "continue": "next" });
        let pod = json!({ "name": "web-1", "namespace": "team", "uid": "u1", "ownerReferences": owners });
        // In the order of an API server.
        let list =
            format!("{{\"kind\":\"PartialObjectMetadataList\",\"metadata\":{metadata},\"items\":[{{\"metadata\":");
        let pod = pod.to_string();
        let first = format!(
            "{{\"name\":\"web-1\",\"namespace\":\"team\",\"uid\":\"u1\",{}",
            &pod[pod.find("\"ownerReferences").unwrap()..]
        );
        let text = format!("{list}{first}}}]}}");
        for text in [&text[..500_000], &text[..1_000_000]] {
            decode_pods(text, PAGE_SIZE).unwrap_err();
            let page = decode_pods(text, 1).unwrap();
            assert_eq!(page.metadata.r#continue.unwrap().0, "next");
            let [WorkloadPod(pod)] = &page.items.0[..] else { panic!("one pod") };
            assert_eq!((pod.name_any().as_str(), pod.uid().as_deref()), ("web-1", Some("u1")));
        }
        decode_pods("{}", 1).unwrap();
        decode_pods("[1,", 1).unwrap_err();
    }
}
