//! The state of the simulation at one moment, small enough to be hashed and compared millions of times.

use fivespot_api::Phase;
use fivespot_planner::observed::{Cluster, Cordon, Exclusions};

use super::invariants::Invariant;
use super::mutations::Mutation;
use super::reconcile::Reconcile;
use super::time::Seconds;

/// What the spec asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is set independently")]
pub(crate) struct Requested {
    pub(crate) deleted: bool,
    pub(crate) kill_switch: bool,
    pub(crate) enabled: bool,
    /// Whether the spec parses.
    pub(crate) valid: bool,
    /// Whether `killIfCommands` is set.
    pub(crate) reclaimable: bool,
}

impl Requested {
    /// A machine while the window is open.
    pub(crate) const MACHINE: Requested =
        Requested { deleted: false, kill_switch: false, enabled: true, valid: true, reclaimable: true };
}

/// The ScheduledMachine as the API server stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) requested: Requested,
    pub(crate) finalizer: bool,
    /// The annotation that records which provider objects are about to be created.
    pub(crate) intent: IntentState,
    pub(crate) phase: Option<Phase>,
    /// Whether the status has refs.
    pub(crate) refs: bool,
    /// Whether the refs have the uids of the provider objects.
    pub(crate) child_uids: bool,
    pub(crate) shutdown_started_at: Option<Seconds>,
    pub(crate) failure: Option<Failure>,
    pub(crate) reclaim: Option<Reclaim>,
}

impl Object {
    /// Whether the provider objects are known after a crash.
    pub(crate) fn has_refs(&self) -> bool {
        self.refs || self.intent == IntentState::Unobserved
    }

    pub(crate) fn reclaim_in_progress(&self) -> bool {
        self.reclaim.is_some_and(|it| it.in_progress)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IntentState {
    Absent,
    /// It counts: the status does not include it.
    Unobserved,
    /// The status includes it.
    Observed,
}

impl IntentState {
    /// After the status was written.
    pub(crate) fn observed(self) -> Self {
        match self {
            IntentState::Absent => IntentState::Absent,
            IntentState::Unobserved | IntentState::Observed => IntentState::Observed,
        }
    }
}

/// The record of the last Machine that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Failure {
    pub(crate) machine: u8,
    pub(crate) count: u8,
    /// When the next Machine may be created.
    pub(crate) retry_at: Seconds,
}

/// The record of the last reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reclaim {
    pub(crate) machine: u8,
    pub(crate) schedule_disabled: bool,
    pub(crate) in_progress: bool,
    pub(crate) count: u8,
}

/// Who manages an object that has the name of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    ScheduledMachine,
    /// Another controller since it took the object over; its uid is unchanged.
    TakenOver,
    /// Another client since it created the object.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MachineState {
    pub(crate) uid: u8,
    pub(crate) owner: Owner,
    pub(crate) deleting: bool,
    pub(crate) exclusions: Exclusions,
    /// Whether it has a `nodeRef`.
    pub(crate) joined: bool,
    pub(crate) failed: bool,
}

impl MachineState {
    pub(crate) fn new(uid: u8, owner: Owner) -> Self {
        MachineState { uid, owner, deleting: false, exclusions: Exclusions::default(), joined: false, failed: false }
    }

    pub(crate) fn is_managed(self) -> bool {
        self.owner == Owner::ScheduledMachine
    }
}

/// A bootstrap or infrastructure object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProviderState {
    pub(crate) owner: Owner,
    pub(crate) deleting: bool,
    /// Uid of the Machine that has adopted it.
    pub(crate) adopted_by: Option<u8>,
}

impl ProviderState {
    pub(crate) fn new(owner: Owner) -> Self {
        ProviderState { owner, deleting: false, adopted_by: None }
    }

    pub(crate) fn uid(self) -> &'static str {
        if self.owner == Owner::Other { "other" } else { "managed" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeState {
    /// Uid of its Machine. The Nodes of all Machines have the same name.
    pub(crate) machine: u8,
    pub(crate) cordon: Cordon,
    pub(crate) reclaim_requested: bool,
    pub(crate) agent: AgentState,
}

/// Rollout of the reclaim agent on a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AgentState {
    pub(crate) labelled: bool,
    pub(crate) config: ConfigState,
    /// Whether it was rolled out for the Machine of the Node. A request from before is left over from an earlier Machine.
    pub(crate) for_machine: bool,
}

impl AgentState {
    pub(crate) const NONE: AgentState = AgentState { labelled: false, config: ConfigState::Absent, for_machine: false };
    pub(crate) const ROLLED_OUT: AgentState =
        AgentState { labelled: true, config: ConfigState::Current, for_machine: true };

    pub(crate) fn is_withdrawn(self) -> bool {
        AgentState { for_machine: false, ..self } == AgentState::NONE
    }
}

/// The agent's ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConfigState {
    Absent,
    Current,
    Unusable,
}

/// The pod on the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PodState {
    Evictable,
    /// A PodDisruptionBudget blocks its eviction.
    Blocked,
    Terminating,
}

/// The controller's connection to the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Connection {
    Connected,
    Connecting,
    Unreachable,
    /// No Node can be identified as the Machine's: another Machine claims it, or the kubeconfig is missing.
    Unidentified,
}

/// What the API servers store besides the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Servers {
    pub(crate) machine: Option<MachineState>,
    pub(crate) bootstrap: Option<ProviderState>,
    pub(crate) infrastructure: Option<ProviderState>,
    pub(crate) node: Option<NodeState>,
    pub(crate) pod: Option<PodState>,
    pub(crate) cluster: Cluster,
    pub(crate) connection: Connection,
}

impl Servers {
    pub(crate) const EMPTY: Servers = Servers {
        machine: None,
        bootstrap: None,
        infrastructure: None,
        node: None,
        pod: None,
        cluster: Cluster::Present,
        connection: Connection::Connected,
    };

    /// The Machine, if the ScheduledMachine manages it.
    pub(crate) fn managed_machine(&self) -> Option<MachineState> {
        self.machine.filter(|it| it.is_managed())
    }

    /// The managed Machine, unless it is being deleted.
    pub(crate) fn live_machine(&self) -> Option<MachineState> {
        self.managed_machine().filter(|it| !it.deleting)
    }

    /// The Node of the managed Machine, if the controller can read it.
    pub(crate) fn reachable_node(&self) -> Option<NodeState> {
        let machine = self.managed_machine().filter(|_| self.connection == Connection::Connected)?;
        self.node.filter(|it| it.machine == machine.uid)
    }

    pub(crate) fn providers(&self) -> [Option<ProviderState>; 2] {
        [self.bootstrap, self.infrastructure]
    }

    pub(crate) fn providers_mut(&mut self) -> [&mut Option<ProviderState>; 2] {
        [&mut self.bootstrap, &mut self.infrastructure]
    }

    /// Whether the ScheduledMachine manages a provider object. A Machine that was taken over takes along what it has
    /// adopted.
    pub(crate) fn is_managed(&self, child: ProviderState) -> bool {
        let taken_over = |it: MachineState| it.owner == Owner::TakenOver && child.adopted_by == Some(it.uid);
        child.owner == Owner::ScheduledMachine && !self.machine.is_some_and(taken_over)
    }

    /// Whether no managed child is left.
    pub(crate) fn nothing_managed(&self) -> bool {
        self.managed_machine().is_none() && !self.providers().into_iter().flatten().any(|it| self.is_managed(it))
    }
}

/// The controller's watch caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caches {
    pub(crate) object: Option<Object>,
    pub(crate) machine: Option<MachineState>,
    pub(crate) node: Option<NodeState>,
}

/// Another instance of the controller, which can take over the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standby {
    /// None takes over any more.
    Absent,
    /// Its caches may lag behind those of the instance that reconciles.
    Watching(Caches),
}

impl Standby {
    /// A watch event arrives.
    pub(crate) fn watch(&mut self, update: impl FnOnce(&mut Caches)) {
        match self {
            Standby::Absent => {}
            Standby::Watching(caches) => update(caches),
        }
    }
}

/// What happens later without any request of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    /// In how many rounds the workload cluster is connected; 0 if it is, or if it never will be.
    pub(crate) reconnect_in: u8,
    /// The owner requests the machine as soon as it has a Node.
    pub(crate) reclaim_request: bool,
}

/// How many more disturbances the model checker explores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) edits: u8,
    pub(crate) crashes: u8,
    pub(crate) faults: u8,
    /// Lost requests and responses.
    pub(crate) losses: u8,
    /// Another instance takes over.
    pub(crate) take_overs: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) object: Option<Object>,
    pub(crate) servers: Servers,
    pub(crate) window_open: bool,
    pub(crate) now: Seconds,
    /// How many Machines the controller has created.
    pub(crate) created: u8,
    pub(crate) caches: Caches,
    /// Whether the object is read before the next plan that has steps: this instance took over from another one, which may
    /// have written what the caches do not have yet.
    pub(crate) reread: bool,
    pub(crate) standby: Standby,
    /// The reconcile in progress.
    pub(crate) reconcile: Option<Reconcile>,
    pub(crate) pending: Pending,
    pub(crate) budget: Budget,
    /// Whether a user has enabled the schedule since the last reclaim.
    pub(crate) enabled_since_reclaim: bool,
    pub(crate) mutation: Option<Mutation>,
    /// The first invariant that was violated.
    pub(crate) violated: Option<Invariant>,
}

impl World {
    /// An object that no reconcile has seen yet.
    pub(crate) fn new(requested: Requested) -> Self {
        let object = Object {
            requested,
            finalizer: false,
            intent: IntentState::Absent,
            phase: None,
            refs: false,
            child_uids: false,
            shutdown_started_at: None,
            failure: None,
            reclaim: None,
        };
        World {
            object: Some(object),
            servers: Servers::EMPTY,
            window_open: true,
            now: Seconds::ZERO,
            created: 0,
            caches: Caches { object: Some(object), machine: None, node: None },
            reread: false,
            standby: Standby::Absent,
            reconcile: None,
            pending: Pending::default(),
            budget: Budget::default(),
            enabled_since_reclaim: true,
            mutation: None,
            violated: None,
        }
    }

    /// The caches receive all outstanding watch events.
    pub(crate) fn sync_caches(&mut self) {
        self.caches = Caches { object: self.object, machine: self.servers.machine, node: self.servers.node };
    }
}
