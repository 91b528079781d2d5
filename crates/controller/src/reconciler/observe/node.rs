//! The Node of a Machine.

use fivespot_api::{NodeTaint, keys};
use fivespot_planner::observed::{Absence, AgentConfig, AgentRollout, Cordon, ManagedNode, Node, ReclaimRequest};
use fivespot_planner::taints;
use k8s_openapi::api::core::v1;
use kube::ResourceExt as _;

use crate::capi::{Claimants, Machine};
use crate::clusters::{AgentConfigState, ClusterKey, NodeLookup, config_text, has_agent_label, has_reclaim_request};
use crate::object::StoredObject;
use crate::reconciler::context::Context;
use crate::runtime::workqueue::Key;

/// The Node of the Machine, as the cache of its workload cluster shows it.
pub(super) fn observe(context: &Context, key: &Key, object: &StoredObject, machine: Option<&Machine>) -> Node {
    let Some((machine, name)) = machine.and_then(|machine| Some((machine, machine.node_name()?))) else {
        context.workload_clusters.release(key);
        return Node::Absent(Absence::NotJoined);
    };
    let cluster = ClusterKey { namespace: key.namespace.clone(), name: machine.spec.cluster_name.clone() };
    match context.workload_clusters.node(key, &cluster, &name) {
        NodeLookup::Connecting => Node::Connecting,
        NodeLookup::Unreachable(cause) => Node::Unreachable(cause),
        NodeLookup::Absent => Node::NotCached(Absence::NotFound { name }),
        NodeLookup::NoKubeconfig { secret } => {
            Node::NotCached(Absence::NoKubeconfig { name, secret: secret.to_string() })
        }
        NodeLookup::Found(node) => match identify(context, key, object, machine, &node) {
            // A machine rejoins under the same name: the cache may still have the Node of the previous Machine.
            Node::Unidentified(absence) => Node::NotCached(absence),
            found => found,
        },
    }
}

/// Checks that a Node is this Machine's and that no other Machine claims it. No other Node is ever written.
pub(super) fn identify(
    context: &Context,
    key: &Key,
    object: &StoredObject,
    machine: &Machine,
    node: &v1::Node,
) -> Node {
    let name = node.name_any();
    let found = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty());
    let expected = machine.spec.provider_id.clone();
    if found.is_none() || found != expected {
        return Node::Unidentified(Absence::ProviderIdMismatch { name, found, expected });
    }
    let among = if context.workload_clusters.is_in_management_cluster(key) {
        Claimants::OfAllClusters
    } else {
        Claimants::OfOneCluster
    };
    if !context.machines.is_sole_claimant(machine, among) {
        return Node::Unidentified(Absence::ClaimedTwice { name, provider_id: found.unwrap_or_default() });
    }
    let annotation = |key: &str| node.annotations().get(key).cloned();
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    Node::Managed(ManagedNode {
        name,
        uid: node.uid().unwrap_or_default(),
        ready: is_ready(node),
        cordon: match (unschedulable, annotation(keys::CORDONED_BY_ANNOTATION)) {
            (false, None) => Cordon::Schedulable,
            (false, Some(_)) => Cordon::Reverted,
            (true, Some(_)) => Cordon::ByController,
            (true, None) => Cordon::ByOther,
        },
        reclaim_request: has_reclaim_request(node).then(|| {
            let (reason, at) = (keys::RECLAIM_REASON_ANNOTATION, keys::RECLAIM_REQUESTED_AT_ANNOTATION);
            ReclaimRequest::from_annotations(annotation(reason).as_deref(), annotation(at).as_deref())
        }),
        agent: agent_rollout(context, key, object, node),
        taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        recorded_taints: recorded_taints(node),
    })
}

/// State of the agent's rollout. ConfigMaps are watched only in clusters where an agent is or was configured.
fn agent_rollout(context: &Context, key: &Key, object: &StoredObject, node: &v1::Node) -> AgentRollout {
    let labelled = node.labels().contains_key(keys::RECLAIM_AGENT_LABEL);
    let machine_uid = node.annotations().get(keys::RECLAIM_AGENT_MACHINE_ANNOTATION).cloned();
    let is_requested = object.spec.kill_if_commands.as_ref().is_some_and(|commands| !commands.is_empty());
    if !labelled && !is_requested {
        return AgentRollout { labelled, config: AgentConfig::Absent, machine_uid };
    }
    let config = match context.workload_clusters.agent_config(key, &node.name_any()) {
        AgentConfigState::Connecting => AgentConfig::Unknown,
        AgentConfigState::Unreadable(_) => AgentConfig::Unusable,
        AgentConfigState::Absent => AgentConfig::Absent,
        AgentConfigState::Found(config_map) => match config_text(&config_map, node) {
            Some(text) => AgentConfig::Present(text.to_owned()),
            None => AgentConfig::Unusable,
        },
    };
    AgentRollout { labelled: has_agent_label(node), config, machine_uid }
}

/// The taints that the controller applied, as the Node records them.
pub(in crate::reconciler) fn recorded_taints(node: &v1::Node) -> Option<Vec<NodeTaint>> {
    node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION).and_then(|annotation| taints::recorded(annotation))
}

fn is_ready(node: &v1::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}
