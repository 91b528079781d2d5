//! Which pods have to leave a Node before its Machine is deleted.
//!
//! A drain is a reconcile, not a wait: each reconcile classifies the pods of the Node, evicts those that are not yet
//! terminating, and is repeated until none is left.

use k8s_openapi::api::core::v1::Pod;

/// Annotation of a mirror pod: the kubelet runs the static pod from a file.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What a drain does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrainAction {
    Evict,
    /// It is terminating.
    Wait,
    /// The drain ignores it.
    Skip(SkipReason),
}

/// Why a drain ignores a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// Its DaemonSet would recreate it.
    DaemonSet,
    /// Deleting a mirror pod does not stop the static pod.
    Mirror,
    Finished,
    /// It is terminating, and the kubelet that would end it does not respond.
    NodeUnreachable,
}

/// Whether the kubelet of a Node can end pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kubelet {
    Responding,
    /// The node lifecycle controller has set condition `Ready` to Unknown.
    Unresponsive,
}

pub fn classify(pod: &Pod, kubelet: Kubelet) -> DrainAction {
    if is_mirror(pod) {
        DrainAction::Skip(SkipReason::Mirror)
    } else if is_daemon_set_pod(pod) {
        DrainAction::Skip(SkipReason::DaemonSet)
    } else if is_finished(pod) {
        DrainAction::Skip(SkipReason::Finished)
    } else if pod.metadata.deletion_timestamp.is_none() {
        DrainAction::Evict
    } else {
        match kubelet {
            Kubelet::Responding => DrainAction::Wait,
            Kubelet::Unresponsive => DrainAction::Skip(SkipReason::NodeUnreachable),
        }
    }
}

/// Whether a force removal deletes a pod: all but those that would be recreated.
pub fn is_force_deleted(pod: &Pod) -> bool {
    !is_mirror(pod) && !is_daemon_set_pod(pod)
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(MIRROR_ANNOTATION))
}

fn is_daemon_set_pod(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| {
        owner.controller == Some(true) && owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
    })
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(with: &Value) -> Pod {
        let mut pod = json!({ "metadata": { "name": "p", "namespace": "team" }, "status": { "phase": "Running" } });
        for (pointer, value) in with.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn owned_by(api_version: &str, kind: &str, controller: bool) -> Value {
        json!([{ "apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": controller }])
    }

    const SINCE: &str = "2026-11-16T18:00:00Z";

    #[test]
    fn pods_are_classified() {
        let cases = [
            (json!({}), DrainAction::Evict),
            (json!({ "/status/phase": "Pending" }), DrainAction::Evict),
            (json!({ "/status/phase": "Succeeded" }), DrainAction::Skip(SkipReason::Finished)),
            (json!({ "/status/phase": "Failed" }), DrainAction::Skip(SkipReason::Finished)),
            (json!({ "/metadata/deletionTimestamp": SINCE }), DrainAction::Wait),
            (json!({ "/metadata/annotations": { MIRROR_ANNOTATION: "x" } }), DrainAction::Skip(SkipReason::Mirror)),
            (
                json!({ "/metadata/ownerReferences": owned_by("apps/v1", "DaemonSet", true) }),
                DrainAction::Skip(SkipReason::DaemonSet),
            ),
            (json!({ "/metadata/ownerReferences": owned_by("apps/v1", "DaemonSet", false) }), DrainAction::Evict),
            (json!({ "/metadata/ownerReferences": owned_by("example.com/v1", "DaemonSet", true) }), DrainAction::Evict),
            (json!({ "/metadata/ownerReferences": owned_by("apps/v1", "ReplicaSet", true) }), DrainAction::Evict),
        ];
        for (with, expected) in cases {
            assert_eq!(classify(&pod(&with), Kubelet::Responding), expected, "{with}");
        }
    }

    #[test]
    fn terminating_pod_of_unresponsive_node_is_skipped() {
        let terminating = pod(&json!({ "/metadata/deletionTimestamp": SINCE }));
        assert_eq!(classify(&terminating, Kubelet::Unresponsive), DrainAction::Skip(SkipReason::NodeUnreachable));
        assert_eq!(classify(&pod(&json!({})), Kubelet::Unresponsive), DrainAction::Evict);
    }

    #[test]
    fn force_removal_deletes_finished_and_terminating_pods() {
        assert!(is_force_deleted(&pod(&json!({ "/metadata/deletionTimestamp": SINCE }))));
        assert!(is_force_deleted(&pod(&json!({ "/status/phase": "Succeeded" }))));
        assert!(!is_force_deleted(&pod(&json!({ "/metadata/annotations": { MIRROR_ANNOTATION: "x" } }))));
    }
}
