//! What one reconcile read from API servers and caches, as far as a decision depends on it.
//!
//! A cache may lag behind. A decision made from it may therefore come late, but it does no harm: deletes carry a uid,
//! creates tolerate an existing object.

use fivespot_api::{MachineFailure, NodeTaint, ReclaimStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use crate::drain::DrainAction;

/// One observation of a ScheduledMachine and everything that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub has_finalizer: bool,
    pub stored: Stored,
    /// The children that the spec asks for, if it parses.
    pub desired: Option<DesiredChildren>,
    pub cluster: Cluster,
    pub machine: Child<Machine>,
    /// The bootstrap object that `stored.refs` names.
    pub bootstrap: Child<ProviderChild>,
    /// The infrastructure object that `stored.refs` names.
    pub infrastructure: Child<ProviderChild>,
    pub node: Node,
    pub pods: Pods,
}

impl Observed {
    /// How many pods had to leave when the drain began: the most that any reconcile of this shutdown has observed.
    pub fn initial_pods(&self) -> Option<usize> {
        let stored = self.stored.initial_pods();
        match &self.pods {
            Pods::Read(pods) => {
                let remaining = pods.iter().filter(|pod| pod.blocks_drain()).count();
                Some(stored.unwrap_or_default().max(remaining))
            }
            Pods::NotRead => stored,
        }
    }

    /// The object that has the name of a child and is not managed by this ScheduledMachine, with what to do about it.
    pub fn name_conflict(&self) -> Option<String> {
        let desired = self.desired.as_ref();
        let refs = desired.map(|desired| &desired.refs).or(self.stored.refs.as_ref());
        let name = |reference: &Ref| format!("{} {}", reference.kind, reference.name);
        let object = if matches!(self.machine, Child::Unmanaged(_)) {
            desired.map_or_else(
                || "A Machine with the name of the child".to_owned(),
                |it| format!("Machine {}", it.machine),
            )
        } else if matches!(self.bootstrap, Child::Unmanaged(_)) {
            name(&refs?.bootstrap)
        } else if matches!(self.infrastructure, Child::Unmanaged(_)) {
            name(&refs?.infrastructure)
        } else {
            return None;
        };
        Some(format!(
            "{object} already exists and is not managed by this ScheduledMachine; delete it, or recreate this \
             ScheduledMachine under another name"
        ))
    }
}

/// The children that a spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DesiredChildren {
    /// Name of the Machine.
    pub machine: String,
    pub refs: Refs,
    /// Hash of everything that goes into the children. Children with another fingerprint were created from an earlier spec.
    pub fingerprint: String,
}

/// What the object has stored: everything that must survive a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The provider objects that were created or were about to be: the kinds to delete, whatever the spec says now. From the
    /// status, or from an [`Intent`](crate::intent::Intent) that the status does not include yet.
    pub refs: Option<Refs>,
    /// Whether the status has the uids of both provider objects.
    pub has_child_uids: bool,
    /// As it is stored; [`DecisionInput::shutdown_started_at`](crate::input::DecisionInput::shutdown_started_at) is the one
    /// that counts.
    pub shutdown_started_at: Option<Timestamp>,
    /// As it is stored; [`Stored::initial_pods`] is the one that counts.
    pub initial_pods: Option<i64>,
    /// The last Machine that failed, as it is stored.
    pub machine_failure: Option<MachineFailure>,
    pub reclaim: Option<ReclaimStatus>,
    /// Uid of the Node that `applied_taints` is about.
    pub node_uid: Option<String>,
    pub applied_taints: Vec<NodeTaint>,
}

/// More pods than the controller reads of one Node. Users may be able to write the status.
const MAX_PODS: usize = 10_000;

impl Stored {
    /// How many pods the drain of the shutdown in progress began with.
    pub fn initial_pods(&self) -> Option<usize> {
        let stored = self.initial_pods.filter(|_| self.shutdown_started_at.is_some())?;
        Some(usize::try_from(stored.max(0)).unwrap_or(MAX_PODS).min(MAX_PODS))
    }

    pub fn reclaim_in_progress(&self) -> bool {
        self.reclaim.as_ref().is_some_and(|reclaim| reclaim.in_progress)
    }
}

/// References to the provider objects of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refs {
    pub bootstrap: Ref,
    pub infrastructure: Ref,
}

/// A reference to an object in the namespace of the ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// State of the Cluster, as far as its machines are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cluster {
    Missing,
    Deleting,
    /// Nothing is created or gracefully deleted.
    Paused,
    Present,
}

/// An object with the name of one of the children.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Child<T> {
    NotRead,
    Absent,
    /// An object that this ScheduledMachine does not manage, with its uid. It is never adopted and never deleted.
    Unmanaged(String),
    Managed(T),
}

impl<T> Child<T> {
    pub fn managed(&self) -> Option<&T> {
        match self {
            Child::Managed(child) => Some(child),
            Child::NotRead | Child::Absent | Child::Unmanaged(_) => None,
        }
    }
}

/// The Machine of this ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    pub name: String,
    pub uid: String,
    pub deleting: bool,
    pub exclusions: Exclusions,
    pub health: MachineHealth,
    /// Name in `status.nodeRef`.
    pub node: Option<String>,
    pub provider_id: Option<String>,
    pub fingerprint: Option<String>,
    pub created_at: Option<Timestamp>,
    /// Whether this was read from the API server in this reconcile, not from the cache.
    pub live: bool,
}

/// What Cluster API is asked to skip when it deletes a Machine, by annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exclusions {
    /// `exclude-node-draining`: the controller has drained the Node itself.
    pub node_drain: bool,
    /// `exclude-wait-for-node-volume-detach`.
    pub volume_detach: bool,
}

impl Exclusions {
    pub const ALL: Exclusions = Exclusions { node_drain: true, volume_detach: true };
}

/// What Cluster API reports about a Machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MachineHealth {
    Provisioning,
    Running,
    /// The Machine failed, or a `MachineHealthCheck` marked it for remediation; with the reason.
    Failed(String),
}

/// The bootstrap or infrastructure object of this ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderChild {
    pub uid: String,
    pub deleting: bool,
    /// Uid of the Machine that has adopted it. Another Machine cannot use it.
    pub adopted_by: Option<String>,
    pub fingerprint: Option<String>,
}

/// The Node of the Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// There is certainly no Node that is this Machine's.
    Absent(Absence),
    /// The workload cluster is being connected.
    Connecting,
    /// The cache has no Node that is this Machine's, but it may lag behind.
    NotCached(Absence),
    /// The workload cluster cannot be accessed, with the cause.
    Unreachable(String),
    /// The Machine may have a Node, but none can be identified as its own.
    Unidentified(Absence),
    Managed(ManagedNode),
}

impl Node {
    pub fn managed(&self) -> Option<&ManagedNode> {
        match self {
            Node::Managed(node) => Some(node),
            Node::Absent(_) | Node::Connecting | Node::NotCached(_) | Node::Unreachable(_) | Node::Unidentified(_) => {
                None
            }
        }
    }
}

/// Why no Node of a Machine is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Absence {
    #[error("Machine has no Node yet")]
    NotJoined,
    #[error("Node {name} does not exist")]
    NotFound { name: String },
    /// Without a kubeconfig, only the management cluster can be searched.
    #[error(
        "Node {name} is not in the management cluster and Secret {secret} does not exist; restore the Secret if the Node \
         is in a workload cluster"
    )]
    NoKubeconfig { name: String, secret: String },
    #[error("Node {name} has {}", mismatch(found.as_ref(), expected.as_ref()))]
    ProviderIdMismatch { name: String, found: Option<String>, expected: Option<String> },
    #[error("providerID {} of Node {name} is claimed by more than one Machine", quoted(provider_id))]
    ClaimedTwice { name: String, provider_id: String },
}

/// The server of a kubeconfig decides what a Node says, and the text ends up in the status.
const MAX_PROVIDER_ID_CHARS: usize = 200;

/// "providerID "a", expected "b"", "no providerID".
fn mismatch(found: Option<&String>, expected: Option<&String>) -> String {
    let found = found.map_or_else(|| "no providerID".to_owned(), |id| format!("providerID {}", quoted(id)));
    expected.map_or_else(|| found.clone(), |id| format!("{found}, expected {}", quoted(id)))
}

fn quoted(id: &str) -> String {
    match id.char_indices().nth(MAX_PROVIDER_ID_CHARS) {
        Some((end, _)) => format!("{:?}…", &id[..end]),
        None => format!("{id:?}"),
    }
}

/// The Node of the Machine, as far as a decision depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedNode {
    pub name: String,
    pub uid: String,
    pub ready: bool,
    pub cordon: Cordon,
    pub reclaim_request: Option<ReclaimRequest>,
    pub agent: AgentRollout,
    pub taints: Vec<Taint>,
    /// The taints that the controller applied, as the annotation on the Node records them.
    pub recorded_taints: Option<Vec<NodeTaint>>,
}

impl ManagedNode {
    /// The taints that the controller applied: from the annotation, which is written together with the taints, or else from
    /// `status.appliedNodeTaints` if that is about this Node.
    pub fn applied_taints(&self, stored: &Stored) -> Vec<NodeTaint> {
        let from_status = || (stored.node_uid.as_ref() == Some(&self.uid)).then(|| stored.applied_taints.clone());
        self.recorded_taints.clone().or_else(from_status).unwrap_or_default()
    }
}

/// What the Node and its cluster have of the reclaim agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentRollout {
    /// Whether the Node has the label that the agent's DaemonSet selects.
    pub labelled: bool,
    pub config: AgentConfig,
    /// Uid of the Machine that the agent was rolled out for. The Node may have been another Machine's before.
    pub machine_uid: Option<String>,
}

/// The agent's ConfigMap for a Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AgentConfig {
    /// Not read yet.
    Unknown,
    Absent,
    /// It exists and cannot be used as it is: it belongs to another Node, has other keys, or cannot be read.
    Unusable,
    Present(String),
}

/// Whether a Node accepts new pods, and who cordoned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cordon {
    Schedulable,
    ByController,
    /// Cordoned by another client; the controller does not uncordon it.
    ByOther,
    /// Cordoned by the controller and uncordoned by another client; the controller's annotation is left.
    Reverted,
}

impl Cordon {
    pub fn accepts_pods(self) -> bool {
        match self {
            Cordon::Schedulable | Cordon::Reverted => true,
            Cordon::ByController | Cordon::ByOther => false,
        }
    }

    pub fn is_annotated(self) -> bool {
        match self {
            Cordon::ByController | Cordon::Reverted => true,
            Cordon::Schedulable | Cordon::ByOther => false,
        }
    }
}

/// The reclaim request that the agent wrote on the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReclaimRequest {
    pub reason: Option<String>,
    pub at: Option<Timestamp>,
}

/// More than the agent ever writes.
const MAX_REASON_CHARS: usize = 300;

impl ReclaimRequest {
    /// Reads the annotations. Anyone who may annotate the Node controls them, and they end up in the status: neither a
    /// long reason nor a time that the API server rejects may block the reclaim.
    pub fn from_annotations(reason: Option<&str>, at: Option<&str>) -> Self {
        let one_line = |text: &str| {
            let line: String =
                text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON_CHARS).collect();
            let truncated = text.chars().nth(MAX_REASON_CHARS).is_some();
            if truncated { line + "…" } else { line }
        };
        let at = at.and_then(|text| text.parse::<Timestamp>().ok());
        ReclaimRequest { reason: reason.map(one_line), at: at.filter(|at| *at >= Timestamp::UNIX_EPOCH) }
    }
}

/// The pods of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pods {
    NotRead,
    Read(Vec<NodePod>),
}

/// A pod of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodePod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub drain: DrainAction,
    /// Whether a force removal still has to delete it.
    pub force_delete: bool,
}

impl NodePod {
    /// Whether a drain waits for it.
    pub fn blocks_drain(&self) -> bool {
        match self.drain {
            DrainAction::Evict | DrainAction::Wait => true,
            DrainAction::Skip(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_request_is_passed_on_unchanged() {
        let longest = format!("process-match: {}", "é".repeat(256));
        let request = ReclaimRequest::from_annotations(Some(&longest), Some("2026-04-20T21:45:00Z"));
        assert_eq!((request.reason, request.at), (Some(longest), "2026-04-20T21:45:00Z".parse().ok()));
        assert_eq!(ReclaimRequest::from_annotations(None, None), ReclaimRequest { reason: None, at: None });
    }

    #[test]
    fn forged_request_is_bounded() {
        let long = "a\nb\u{1b}".repeat(100_000);
        let reason = ReclaimRequest::from_annotations(Some(&long), None).reason.unwrap();
        assert!(reason.starts_with("a b ") && reason.ends_with('…'), "{reason}");
        assert_eq!(reason.chars().count(), MAX_REASON_CHARS + 1);
        // The API server rejects years before 1.
        for at in ["-000001-01-01T00:00:00Z", "yesterday", ""] {
            assert_eq!(ReclaimRequest::from_annotations(None, Some(at)).at, None, "{at}");
        }
    }

    #[test]
    fn mismatch_names_both_provider_ids() {
        let mismatch = |found: Option<&str>| {
            let (found, expected) = (found.map(str::to_owned), Some("b".to_owned()));
            Absence::ProviderIdMismatch { name: "desk-01".to_owned(), found, expected }.to_string()
        };
        assert_eq!(mismatch(Some("a")), "Node desk-01 has providerID \"a\", expected \"b\"");
        assert_eq!(mismatch(None), "Node desk-01 has no providerID, expected \"b\"");
        let forged = mismatch(Some(&"é".repeat(1_000_000)));
        assert!(forged.chars().count() < 300 && forged.ends_with("expected \"b\""), "{forged}");
    }
}
