//! Which pods have to leave a Node before its machine may go.
//!
//! A drain is a pass, not a wait: each pass classifies the pods that are there, asks those to leave that have not been
//! asked, and comes back while any is awaited.

use k8s_openapi::api::core::v1::Pod;

/// Annotation of a pod that the kubelet runs from a file, and that the API server only mirrors.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What a drain does about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is asked to leave.
    Evict,
    /// It is on its way out already.
    Await,
    /// It stays where it is, and nobody waits for it.
    Leave(Exempt),
}

/// Why a pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exempt {
    /// Its DaemonSet would only start it again.
    DaemonSet,
    /// The kubelet runs it from a file; deleting its mirror stops nothing.
    Mirror,
    /// It has ended by itself.
    Finished,
    /// Nobody is there to end it: the kubelet of its Node does not answer.
    NodeUnreachable,
}

/// Whether the kubelet of a Node can be expected to end pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kubelet {
    /// It reports.
    Answers,
    /// It has not reported for a while.
    Silent,
}

/// What a drain does about a pod of a Node.
pub fn classify(pod: &Pod, kubelet: Kubelet) -> Verdict {
    if is_mirror(pod) {
        Verdict::Leave(Exempt::Mirror)
    } else if is_of_daemon_set(pod) {
        Verdict::Leave(Exempt::DaemonSet)
    } else if is_finished(pod) {
        Verdict::Leave(Exempt::Finished)
    } else if pod.metadata.deletion_timestamp.is_none() {
        Verdict::Evict
    } else {
        match kubelet {
            Kubelet::Answers => Verdict::Await,
            Kubelet::Silent => Verdict::Leave(Exempt::NodeUnreachable),
        }
    }
}

/// Whether an eject ends a pod at once: all but those that would come back by themselves.
pub fn is_ejected(pod: &Pod) -> bool {
    !is_mirror(pod) && !is_of_daemon_set(pod)
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(MIRROR_ANNOTATION))
}

fn is_of_daemon_set(pod: &Pod) -> bool {
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
    fn each_pod_gets_the_verdict_of_what_it_is() {
        let cases = [
            (json!({}), Verdict::Evict),
            (json!({ "/status/phase": "Pending" }), Verdict::Evict),
            (json!({ "/status/phase": "Succeeded" }), Verdict::Leave(Exempt::Finished)),
            (json!({ "/status/phase": "Failed" }), Verdict::Leave(Exempt::Finished)),
            (json!({ "/metadata/deletionTimestamp": SINCE }), Verdict::Await),
            (json!({ "/metadata/annotations": { MIRROR_ANNOTATION: "x" } }), Verdict::Leave(Exempt::Mirror)),
            (
                json!({ "/metadata/ownerReferences": owned_by("apps/v1", "DaemonSet", true) }),
                Verdict::Leave(Exempt::DaemonSet),
            ),
            (json!({ "/metadata/ownerReferences": owned_by("apps/v1", "DaemonSet", false) }), Verdict::Evict),
            (json!({ "/metadata/ownerReferences": owned_by("example.com/v1", "DaemonSet", true) }), Verdict::Evict),
            (json!({ "/metadata/ownerReferences": owned_by("apps/v1", "ReplicaSet", true) }), Verdict::Evict),
        ];
        for (with, verdict) in cases {
            assert_eq!(classify(&pod(&with), Kubelet::Answers), verdict, "{with}");
        }
    }

    #[test]
    fn a_terminating_pod_of_a_node_that_does_not_answer_is_not_awaited() {
        let terminating = pod(&json!({ "/metadata/deletionTimestamp": SINCE }));
        assert_eq!(classify(&terminating, Kubelet::Silent), Verdict::Leave(Exempt::NodeUnreachable));
        assert_eq!(classify(&pod(&json!({})), Kubelet::Silent), Verdict::Evict);
    }

    #[test]
    fn an_eject_ends_finished_and_terminating_pods_too() {
        assert!(is_ejected(&pod(&json!({ "/metadata/deletionTimestamp": SINCE }))));
        assert!(is_ejected(&pod(&json!({ "/status/phase": "Succeeded" }))));
        assert!(!is_ejected(&pod(&json!({ "/metadata/annotations": { MIRROR_ANNOTATION: "x" } }))));
    }
}
