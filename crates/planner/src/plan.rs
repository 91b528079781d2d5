//! What to do, as data: a decision is compared in a test, and carried out elsewhere.

use fivespot_api::conditions::{NodeTainted, Ready, ReferencesValid};
use fivespot_api::{NodeTaint, Phase, ReclaimStatus};
use jiff::Timestamp;

use crate::event::Event;
use crate::observed::{Marks, NodePod, Refs};

/// What comes of looking at a situation.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// This is what to do.
    Do(Box<Plan>),
    /// It depends on something that has not been read: read it, and ask again.
    Look(Look),
}

/// What has to be read before it can be said what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// The Machine, the bootstrap and the infrastructure object, from the API server itself.
    Children,
    /// The Machine, from the API server itself, and its Node anew.
    Machine,
    /// The Node, from the API server itself.
    Node,
    /// The pods of the Node.
    Pods,
}

/// What one pass does, in order, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The acts, in order; the first that fails ends the pass, unless it is one that no other waits for.
    pub actions: Vec<Action>,
    /// What the status says when all of them have been done.
    pub standing: Standing,
    /// What is told when all of them have been done, besides what follows from the status.
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before; `None` if only an event can change anything.
    pub wake_at: Option<Timestamp>,
}

/// One act. Each may be repeated, and each may find that it was done already.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer on the object.
    AddFinalizer,
    /// Take it off: nothing of ours is left.
    RemoveFinalizer,
    /// Write the status now, because the acts that follow rely on it after a crash.
    Store(Box<Standing>),
    /// Create the bootstrap and infrastructure objects, then the Machine.
    CreateChildren,
    /// Tell Cluster API what to leave out when the Machine goes.
    Mark(Marks),
    /// Take our marks off again.
    Unmark,
    /// Delete the Machine of this uid.
    DeleteMachine {
        /// Its uid.
        uid: String,
    },
    /// Delete a bootstrap or infrastructure object that its Machine left behind.
    DeleteProvider {
        /// Which of the two.
        role: Role,
        /// Its uid.
        uid: String,
    },
    /// Let no new pod onto the Node.
    Cordon,
    /// Let pods onto the Node again.
    Uncordon,
    /// Put taints on the Node, and take those off that are ours and not wanted any more.
    Taint {
        /// What the Node should have.
        wanted: Vec<NodeTaint>,
        /// What is ours, where the Node itself does not say.
        told: Vec<NodeTaint>,
    },
    /// Ask these pods to leave, with regard to their disruption budgets.
    Evict(Vec<PodKey>),
    /// End these pods at once, with regard to nothing.
    EndPods(Vec<PodKey>),
    /// Find the pods of the Node and end them at once: nothing waits for somebody to look first.
    EndAllPods,
    /// Set `schedule.enabled` to false, so that the machine does not come back by itself.
    DisableSchedule,
    /// Have the agent on the Node, with these orders.
    Project {
        /// The text of its configuration.
        orders: String,
    },
    /// Take the agent's configuration and its label away.
    Unproject,
    /// Take the agent's request off the Node.
    ClearRequest,
    /// Do these lists side by side, the most urgent first: none waits for another for longer than a moment, and a failure
    /// of one does not stop the others.
    Together(Vec<Vec<Action>>),
}

/// Which of the two provider objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The bootstrap object.
    Bootstrap,
    /// The infrastructure object.
    Infrastructure,
}

/// A pod, so that a namesake which took its place is not meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl PodKey {
    /// The key of a pod.
    pub fn of(pod: &NodePod) -> Self {
        PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
    }
}

/// Where a machine stands: what the status will say.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The phase.
    pub phase: Phase,
    /// Reason of the condition `Ready`.
    pub ready: Ready,
    /// Reason of the condition `ReferencesValid`.
    pub references: ReferencesValid,
    /// The same in a sentence.
    pub message: String,
    /// The children that are there or about to be.
    pub refs: Option<Refs>,
    /// When the shutdown that is under way began.
    pub shutdown_started_at: Option<Timestamp>,
    /// The last emergency reclaim.
    pub reclaim: Option<ReclaimStatus>,
    /// The taints of the Node; `None` if they are as they were, as long as the Node is.
    pub taints: Option<Tainted>,
}

/// How it stands with the taints of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct Tainted {
    /// Those that are ours.
    pub applied: Vec<NodeTaint>,
    /// The condition `NodeTainted` and its sentence; none where nobody wants taints.
    pub told: Option<(NodeTainted, String)>,
}

impl Standing {
    /// Where an object stands of which nobody could even find out what to do: something is wrong.
    pub fn unknown() -> Self {
        Standing {
            phase: Phase::Error,
            ready: Ready::Error,
            references: ReferencesValid::Valid,
            message: String::new(),
            refs: None,
            shutdown_started_at: None,
            reclaim: None,
            taints: None,
        }
    }
}
