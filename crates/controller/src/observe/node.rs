//! The Node of a Machine: which it is, and that it is really its own.

use fivespot_api::{NodeTaint, keys};
use fivespot_planner::observed::{Agent, Cordon, Node, Orders, OurNode, ReclaimRequest};
use fivespot_planner::taints;
use k8s_openapi::api::core::v1;
use kube::ResourceExt as _;

use super::Eye;
use crate::cluster_api::Machine;
use crate::workload::{ClusterKey, Lookup, Posted, orders};

/// What is known of the Node of our Machine.
pub(super) fn observe(eye: &Eye<'_>, machine: Option<&Machine>) -> Node {
    let Eye { context, key, .. } = *eye;
    let named = machine.and_then(|machine| super::node_name(machine).map(|name| (machine, name)));
    let Some((machine, name)) = named else {
        context.workloads.release(key);
        return Node::None;
    };
    let cluster = ClusterKey { namespace: key.namespace.clone(), name: machine.spec.cluster_name.clone() };
    match context.workloads.node(key, &cluster, &name) {
        Lookup::Sought => Node::Sought,
        Lookup::Unreachable(why) => Node::Unreachable(why),
        Lookup::Absent => Node::NotSeen,
        Lookup::Found(node) => match ours(eye, machine, &node) {
            // A machine that comes back has the name that it had: the cache may still have the Node of the one before.
            Node::None => Node::NotSeen,
            found => found,
        },
    }
}

/// The Node, if it is our Machine's and no other Machine claims it. No other is ever touched, even one of the same name.
pub(super) fn ours(eye: &Eye<'_>, machine: &Machine, node: &v1::Node) -> Node {
    let provider_id = node.spec.as_ref().and_then(|it| it.provider_id.as_ref()).filter(|it| !it.is_empty());
    if provider_id.is_none()
        || provider_id != machine.spec.provider_id.as_ref()
        || !eye.context.machines.is_alone(machine)
    {
        return Node::None;
    }
    let annotation = |key: &str| node.annotations().get(key).cloned();
    let closed = node.spec.as_ref().and_then(|it| it.unschedulable) == Some(true);
    Node::Ours(OurNode {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        ready: is_ready(node),
        cordon: match (closed, annotation(keys::CORDONED_BY_ANNOTATION)) {
            (false, None) => Cordon::Open,
            (false, Some(_)) => Cordon::Reopened,
            (true, Some(_)) => Cordon::Ours,
            (true, None) => Cordon::Others,
        },
        reclaim: is_requested(node).then(|| {
            let (reason, at) = (keys::RECLAIM_REASON_ANNOTATION, keys::RECLAIM_REQUESTED_AT_ANNOTATION);
            ReclaimRequest::said(annotation(reason).as_deref(), annotation(at).as_deref())
        }),
        agent: agent(eye, node),
        taints: node.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default(),
        recorded_taints: recorded_taints(node),
    })
}

/// Whether the agent on a Node asks for it. Only the literal word counts.
pub(crate) fn is_requested(node: &v1::Node) -> bool {
    node.annotations().get(keys::RECLAIM_REQUESTED_ANNOTATION).is_some_and(|it| it == keys::RECLAIM_REQUESTED)
}

/// The agent on a Node. What it is told is looked for only where it may have been told something, or is to be.
fn agent(eye: &Eye<'_>, node: &v1::Node) -> Agent {
    let labelled = node.labels().contains_key(keys::RECLAIM_AGENT_LABEL);
    let asked_for = eye.object.spec.kill_if_commands.as_ref().is_some_and(|it| !it.is_empty());
    if !labelled && !asked_for {
        return Agent { labelled, orders: Orders::None };
    }
    let orders = match eye.context.workloads.orders(eye.key, &node.name_any()) {
        Posted::Sought => Orders::Sought,
        Posted::Unreadable(_) => Orders::Other,
        Posted::Nothing => Orders::None,
        Posted::Found(found) => match orders::text(&found, node) {
            Some(text) => Orders::Told(text.to_owned()),
            None => Orders::Other,
        },
    };
    Agent { labelled: orders::is_enabled(node), orders }
}

/// The taints on a Node that are ours, as it records.
pub(crate) fn recorded_taints(node: &v1::Node) -> Option<Vec<NodeTaint>> {
    node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION).and_then(|it| taints::recorded(it))
}

/// Whether the kubelet says so.
fn is_ready(node: &v1::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}
