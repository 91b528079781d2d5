//! What one look at the world saw, as far as a decision depends on it.
//!
//! Everything here was read from an API server or its cache. A cache may lag behind, so a decision made from this may come
//! late but must never do harm: whatever it deletes it names by uid, whatever it creates may exist already.

use fivespot_api::ReclaimStatus;
use jiff::Timestamp;

use crate::drain::Verdict;

/// One look at a ScheduledMachine and all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Whether our finalizer is on the object.
    pub finalizer: bool,
    /// What its status says of the past.
    pub stored: Stored,
    /// The provider objects that the spec asks for, if it parses.
    pub wanted: Option<Refs>,
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
}

/// What the status remembers: all that a restart must not lose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The children that were about to be created, or were: their kinds are these, whatever the spec says now.
    pub refs: Option<Refs>,
    /// When the shutdown that is under way began.
    pub shutdown_started_at: Option<Timestamp>,
    /// The last emergency reclaim.
    pub reclaim: Option<ReclaimStatus>,
    /// Whether that reclaim is under way.
    pub reclaiming: bool,
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
    /// There is something that is not ours: it is never adopted and never deleted.
    Foreign,
    /// There is our child.
    Ours(T),
}

impl<T> Slot<T> {
    /// Our child, if it is there.
    pub fn ours(&self) -> Option<&T> {
        match self {
            Slot::Ours(child) => Some(child),
            Slot::NotRead | Slot::Absent | Slot::Foreign => None,
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
    /// It is a Node that is Ready.
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
}

/// The Node of our Machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The Machine has none yet, or the Node has gone, or the one of that name is not our Machine's.
    None,
    /// The cluster that it lives in does not answer.
    Unreachable(String),
    /// It is there, and it is our Machine's.
    Ours(OurNode),
}

/// The Node of our Machine, as far as a decision depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OurNode {
    /// Its name.
    pub name: String,
    /// Whether it takes new pods.
    pub cordon: Cordon,
    /// The agent's request, if there is one.
    pub reclaim: Option<ReclaimRequest>,
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
}

/// What the agent wrote on the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReclaimRequest {
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
}

/// The pods of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pods {
    /// Nobody looked: no drain is under way.
    NotRead,
    /// These are on the Node.
    Read(Vec<NodePod>),
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
    /// Whether an eject ends it.
    pub ejected: bool,
}
