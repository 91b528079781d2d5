//! What one look at the world saw, as far as a decision depends on it.
//!
//! Everything here was read from an API server or its cache. A cache may lag behind, so a decision made from this may come
//! late but must never do harm: whatever it deletes it names by uid, whatever it creates may exist already.

use fivespot_api::{NodeTaint, ReclaimStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use crate::drain::Verdict;

/// One look at a ScheduledMachine and all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Whether our finalizer is on the object.
    pub finalizer: bool,
    /// What its status says of the past.
    pub stored: Stored,
    /// The children that the spec asks for, if it parses.
    pub wanted: Option<Wanted>,
    /// The Cluster it joins.
    pub cluster: Cluster,
    /// The Machine of its name.
    pub machine: Slot<Machine>,
    /// The bootstrap object that `stored.refs` names.
    pub bootstrap: Slot<ProviderChild>,
    /// The infrastructure object that `stored.refs` names.
    pub infrastructure: Slot<ProviderChild>,
    /// The Node of the Machine.
    pub node: Node,
    /// The pods of the Node.
    pub pods: Pods,
    /// Until when no machine is made, because the last one failed.
    pub held_off: Option<HeldOff>,
}

/// The children that a spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Name of the Machine.
    pub machine: String,
    /// The provider objects.
    pub refs: Refs,
    /// What they are made from: children of another fingerprint were made from a spec that has been edited since.
    pub fingerprint: String,
}

/// A machine failed, and the next one is not made at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldOff {
    /// When it is made.
    pub until: Timestamp,
    /// What became of the last one.
    pub why: String,
}

/// What the status remembers: all that a restart must not lose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The children that were about to be created, or were: their kinds are these, whatever the spec says now.
    pub refs: Option<Refs>,
    /// Whether the uids of both are known.
    pub uids_known: bool,
    /// When the shutdown that is under way began.
    pub shutdown_started_at: Option<Timestamp>,
    /// The last emergency reclaim.
    pub reclaim: Option<ReclaimStatus>,
    /// Whether that reclaim is under way.
    pub reclaiming: bool,
    /// The Node of which something is told, by its uid.
    pub node_uid: Option<String>,
    /// The taints on it that are ours.
    pub applied_taints: Vec<NodeTaint>,
}

/// The provider objects of a machine, by group, version, kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refs {
    /// The bootstrap object.
    pub bootstrap: Ref,
    /// The infrastructure object.
    pub infrastructure: Ref,
}

/// An object by group, version, kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// The Cluster, as far as its machines are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cluster {
    /// There is none of that name.
    Missing,
    /// It is being deleted.
    Deleting,
    /// It is paused: nothing is created or deleted gracefully.
    Paused,
    /// It takes machines.
    Present,
}

/// A place where one of our children may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Slot<T> {
    /// Nobody looked: it does not matter to this decision.
    NotRead,
    /// There is nothing.
    Absent,
    /// There is something that is not ours, of this uid: it is never adopted and never deleted.
    Foreign(String),
    /// There is our child.
    Ours(T),
}

impl<T> Slot<T> {
    /// Our child, if it is there.
    pub fn ours(&self) -> Option<&T> {
        match self {
            Slot::Ours(child) => Some(child),
            Slot::NotRead | Slot::Absent | Slot::Foreign(_) => None,
        }
    }
}

/// Our Machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its uid.
    pub uid: String,
    /// Whether its delete has been issued.
    pub deleting: bool,
    /// What Cluster API is told to leave out when it goes.
    pub marks: Marks,
    /// What Cluster API says of it.
    pub health: Health,
    /// Name of the Node that it has become.
    pub node: Option<String>,
    /// The provider's identifier of it.
    pub provider_id: Option<String>,
    /// What it was made from.
    pub fingerprint: Option<String>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Whether the API server itself was asked in this pass. A cache may lag behind.
    pub confirmed: bool,
}

impl Machine {
    /// What is wrong with one that runs and has no Node.
    pub fn no_node(&self) -> String {
        let name = self.node.as_deref().unwrap_or_default();
        format!("Node {name} is not there, or its providerID is not this machine's alone")
    }
}

/// What Cluster API is told to leave out when a Machine goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// Our drain is the drain.
    pub no_drain: bool,
    /// Nobody waits for volumes any more.
    pub no_volumes: bool,
}

impl Marks {
    /// Everything is left out.
    pub const ALL: Marks = Marks { no_drain: true, no_volumes: true };
}

/// What Cluster API says of a Machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It is on its way to be a Node.
    Provisioning,
    /// It has become a Node.
    Running,
    /// It failed, or a `MachineHealthCheck` wants it made anew.
    Failed(String),
}

/// Our bootstrap or infrastructure object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProviderChild {
    /// Its uid.
    pub uid: String,
    /// Whether its delete has been issued.
    pub deleting: bool,
    /// The uid of the Machine that has adopted it: with another Machine it is of no use.
    pub adopted_by: Option<String>,
    /// What it was made from.
    pub fingerprint: Option<String>,
}

/// The Node of our Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// The Machine has none yet, or the Node has gone, or the one of that name is not our Machine's.
    None,
    /// Its cluster is being connected: nobody can tell yet.
    Sought,
    /// The cache does not have it, and a cache may lag behind.
    NotSeen,
    /// The cluster that it lives in does not answer.
    Unreachable(String),
    /// It is there, and it is our Machine's.
    Ours(OurNode),
}

/// The Node of our Machine, as far as a decision depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct OurNode {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether its kubelet says that it is Ready.
    pub ready: bool,
    /// Whether it takes new pods.
    pub cordon: Cordon,
    /// The agent's request, if there is one.
    pub reclaim: Option<ReclaimRequest>,
    /// The agent itself.
    pub agent: Agent,
    /// All its taints.
    pub taints: Vec<Taint>,
    /// Those that are ours, as the Node itself records it.
    pub recorded_taints: Option<Vec<NodeTaint>>,
}

impl OurNode {
    /// The taints that are ours. The record on the Node is written with the taints themselves; where somebody took it
    /// away, what the status says of this very Node proves as much.
    pub fn our_taints(&self, stored: &Stored) -> Vec<NodeTaint> {
        let told = || (stored.node_uid.as_ref() == Some(&self.uid)).then(|| stored.applied_taints.clone());
        self.recorded_taints.clone().or_else(told).unwrap_or_default()
    }
}

/// What a Node and its cluster have of the reclaim agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    /// Whether the Node has the label that lets the agent onto it.
    pub labelled: bool,
    /// What it is told to look for.
    pub orders: Orders,
}

/// What the agent of a Node is told to look for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Orders {
    /// Nobody can tell yet.
    Sought,
    /// It has not been told anything.
    None,
    /// It has been told something else than this Node's agent is told, or it cannot be told what it has been told.
    Other,
    /// It has been told this.
    Told(String),
}

/// Whether a Node takes new pods, and who said that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cordon {
    /// It takes pods.
    Open,
    /// We closed it.
    Ours,
    /// Somebody else closed it, and we do not open it again.
    Others,
    /// We closed it, and somebody else opened it again; our mark is still on it.
    Reopened,
}

/// What the agent wrote on the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReclaimRequest {
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
}

/// How many characters of a reason are passed on: more than the agent ever writes.
const LONGEST_REASON: usize = 300;

impl ReclaimRequest {
    /// What the annotations of a Node say. Whoever can write them may say what they like, and it ends up in the status: a
    /// reason that is too long for it, or a time that it has no form for, must not keep a machine from its owner.
    pub fn said(reason: Option<&str>, at: Option<&str>) -> Self {
        let line = |it: &str| {
            let line: String =
                it.chars().map(|it| if it.is_control() { ' ' } else { it }).take(LONGEST_REASON).collect();
            let cut = it.chars().nth(LONGEST_REASON).is_some();
            if cut { line + "…" } else { line }
        };
        let at = at.and_then(|it| it.parse::<Timestamp>().ok());
        ReclaimRequest { reason: reason.map(line), at: at.filter(|it| *it >= Timestamp::UNIX_EPOCH) }
    }
}

/// The pods of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pods {
    /// Nobody looked: no drain is under way.
    NotRead,
    /// Some have been read.
    Read {
        /// These are on the Node.
        now: Vec<NodePod>,
        /// How many there were to leave when the drain was first seen.
        at_first: usize,
    },
}

/// A pod of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodePod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What a drain does about it.
    pub verdict: Verdict,
    /// Whether an eject has still to end it.
    pub to_end: bool,
}

impl NodePod {
    /// Whether a drain waits for it.
    pub fn has_to_leave(&self) -> bool {
        match self.verdict {
            Verdict::Evict | Verdict::Await => true,
            Verdict::Leave(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_agent_writes_is_passed_on_as_it_is() {
        let longest = format!("process-match: {}", "é".repeat(256));
        let request = ReclaimRequest::said(Some(&longest), Some("2026-04-20T21:45:00Z"));
        assert_eq!((request.reason, request.at), (Some(longest), "2026-04-20T21:45:00Z".parse().ok()));
        assert_eq!(ReclaimRequest::said(None, None), ReclaimRequest { reason: None, at: None });
    }

    #[test]
    fn what_somebody_else_writes_is_a_short_line_and_a_time_that_can_be_stored() {
        let long = "a\nb\u{1b}".repeat(100_000);
        let reason = ReclaimRequest::said(Some(&long), None).reason.unwrap();
        assert!(reason.starts_with("a b ") && reason.ends_with('…'), "{reason}");
        assert_eq!(reason.chars().count(), LONGEST_REASON + 1);
        // No API server takes a year before the first one, and no clock shows it.
        for at in ["-000001-01-01T00:00:00Z", "yesterday", ""] {
            assert_eq!(ReclaimRequest::said(None, Some(at)).at, None, "{at}");
        }
    }
}
