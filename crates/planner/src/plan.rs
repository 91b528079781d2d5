//! What one reconcile does, as data. The controller executes it.

use fivespot_api::conditions::{NodeTainted, Ready, ReferencesValid};
use fivespot_api::{MachineFailure, NodeTaint, Phase, ReclaimStatus};
use jiff::Timestamp;

use crate::events::Event;
use crate::observed::{Exclusions, NodePod, Refs};

/// Result of [`decide`](crate::decide::decide).
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Execute(Box<Plan>),
    /// The decision depends on something that was not read: read it, and decide again.
    NeedsRead(NeedsRead),
}

/// What has to be read from an API server before the decision can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeedsRead {
    /// The Machine, the bootstrap and the infrastructure object.
    Children,
    /// The Machine, and with it its Node.
    Machine,
    Node,
    /// The pods of the Node.
    Pods,
}

/// What one reconcile does, and when the next one is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Executed in order. The first failure ends the reconcile, except that of a [best-effort](Step::is_best_effort) step.
    pub steps: Vec<Step>,
    /// The status once all steps have succeeded.
    pub status: DesiredStatus,
    /// Events besides those that follow from the change of the status.
    pub events: Vec<Event>,
    /// When to reconcile again if nothing happens before; `None` if only an event can change anything.
    pub wake_at: Option<Timestamp>,
}

/// One step. Every step is idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    AddFinalizer,
    RemoveFinalizer,
    /// Records the provider objects that are about to be created, and adds the finalizer if it is missing, in one write.
    RecordIntent(Refs),
    /// Stores the status now, because the steps that follow depend on it after a crash.
    StoreStatus(Box<DesiredStatus>),
    /// Sets `spec.schedule.enabled` to false.
    DisableSchedule,
    /// Creates the bootstrap object, the infrastructure object and the Machine.
    CreateChildren,
    /// Evicts the pods, respecting their PodDisruptionBudgets.
    EvictPods(Vec<PodKey>),
    /// Applies the desired taints and removes those that the controller applied and that are no longer desired.
    ApplyTaints {
        desired: Vec<NodeTaint>,
        /// The taints that the controller applied, used if the Node's annotation does not record them.
        applied: Vec<NodeTaint>,
    },
    /// Labels the Node for the reclaim agent and writes the agent's configuration.
    RollOutAgent {
        config: String,
    },
    ForceRemove(ForceRemoval),
    Run(Action),
}

impl Step {
    /// Whether the plan continues if this step fails: no other step depends on it.
    pub fn is_best_effort(&self) -> bool {
        match self {
            Step::ApplyTaints { .. } | Step::RollOutAgent { .. } => true,
            Step::AddFinalizer
            | Step::RemoveFinalizer
            | Step::RecordIntent(_)
            | Step::StoreStatus(_)
            | Step::DisableSchedule
            | Step::CreateChildren
            | Step::EvictPods(_)
            | Step::ForceRemove(_)
            | Step::Run(_) => false,
        }
    }
}

/// Removes a machine without draining. The three lists run concurrently, and a failure in one does not stop the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForceRemoval {
    /// Annotates and deletes the Machine. It gets a short head start, because the owner waits for this.
    pub machine: Vec<Action>,
    pub node: Vec<Action>,
    pub pods: Vec<Action>,
}

impl ForceRemoval {
    /// The lists that have something to do, the most urgent first.
    pub fn concurrent_lists(&self) -> impl Iterator<Item = &[Action]> {
        [&self.machine, &self.node, &self.pods].into_iter().map(Vec::as_slice).filter(|list| !list.is_empty())
    }

    /// The removal as one removal for each list that has something to do, the most urgent first.
    pub fn parts(&self) -> impl Iterator<Item = ForceRemoval> {
        let none = ForceRemoval::default;
        [
            ForceRemoval { machine: self.machine.clone(), ..none() },
            ForceRemoval { node: self.node.clone(), ..none() },
            ForceRemoval { pods: self.pods.clone(), ..none() },
        ]
        .into_iter()
        .filter(|part| *part != ForceRemoval::default())
    }

    /// The same removal with each action replaced.
    #[must_use]
    pub fn map(&self, change: impl Fn(&Action) -> Action) -> ForceRemoval {
        let list = |actions: &[Action]| actions.iter().map(&change).collect();
        ForceRemoval { machine: list(&self.machine), node: list(&self.node), pods: list(&self.pods) }
    }
}

/// A write that does not touch the ScheduledMachine and whose result no later step needs, so it can run beside others.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sets the annotations that make Cluster API skip the drain or the volume detach.
    SetExclusions(Exclusions),
    ClearExclusions,
    DeleteMachine {
        uid: String,
    },
    /// Deletes a provider object that Cluster API left behind.
    DeleteProviderObject {
        role: Role,
        uid: String,
    },
    Cordon,
    Uncordon,
    /// Deletes the pods with grace period 0, regardless of PodDisruptionBudgets.
    DeletePods(Vec<PodKey>),
    /// Lists the pods of the Node and deletes them the same way.
    DeleteAllPods,
    /// Removes the agent's ConfigMap and the Node's label.
    WithdrawAgent,
    /// Removes the reclaim request from the Node.
    ClearReclaimRequest,
}

/// Which of the two provider objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Bootstrap,
    Infrastructure,
}

/// Identifies a pod. The uid prevents acting on a new pod with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodKey {
    pub fn of(pod: &NodePod) -> Self {
        PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
    }
}

/// What the status is to say.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredStatus {
    pub phase: Phase,
    pub ready: Ready,
    pub references: ReferencesValid,
    /// Message of the status and of condition `Ready`.
    pub message: String,
    /// Whether the message says no more than that this process connects to the workload cluster. If the status is about
    /// the same phase of the same Machine, it stays as it is: another process may be connected already, or know why it
    /// cannot be.
    pub connecting: bool,
    /// When the Machine is deleted at the latest; appended to the message.
    pub delete_by: Option<Timestamp>,
    /// The provider objects that exist or are about to be created.
    pub refs: Option<Refs>,
    pub shutdown_started_at: Option<Timestamp>,
    /// How many pods the drain began with. Stored only while a shutdown is.
    pub initial_pods: Option<usize>,
    pub machine_failure: Option<MachineFailure>,
    pub reclaim: Option<ReclaimStatus>,
    /// `None` keeps the taints that the status has stored.
    pub taints: Option<TaintStatus>,
}

/// State of the taints of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct TaintStatus {
    /// The taints that the controller applied.
    pub applied: Vec<NodeTaint>,
    /// Condition `NodeTainted` with its message; `None` if the spec asks for no taints.
    pub condition: Option<(NodeTainted, String)>,
}

impl DesiredStatus {
    /// The status of a reconcile that failed before a decision was made.
    pub fn undecided() -> Self {
        DesiredStatus {
            phase: Phase::Error,
            ready: Ready::Error,
            references: ReferencesValid::Valid,
            message: String::new(),
            connecting: false,
            delete_by: None,
            refs: None,
            shutdown_started_at: None,
            initial_pods: None,
            machine_failure: None,
            reclaim: None,
            taints: None,
        }
    }
}
