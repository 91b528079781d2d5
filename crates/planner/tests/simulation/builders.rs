//! Builders for initial states: `World::new(requested).refs_stored().machine(existing_machine().joined())`.

use fivespot_planner::observed::{Cluster, Cordon, Exclusions};

use super::actors::RECREATE_BACKOFF;
use super::fixtures::{EXISTING_MACHINE, PREVIOUS_MACHINE};
use super::state::{
    AgentState, Connection, Failure, IntentState, MachineState, NodeState, Object, Owner, Pending, PodState,
    ProviderState, Reclaim, World,
};
use super::time::Seconds;

/// A managed Machine that exists in an initial state.
pub(crate) fn existing_machine() -> MachineState {
    MachineState::new(EXISTING_MACHINE, Owner::ScheduledMachine)
}

impl MachineState {
    pub(crate) fn joined(self) -> Self {
        MachineState { joined: true, ..self }
    }

    pub(crate) fn failed(self) -> Self {
        MachineState { failed: true, ..self }
    }

    pub(crate) fn deleting(self) -> Self {
        MachineState { deleting: true, ..self }
    }

    pub(crate) fn taken_over(self) -> Self {
        MachineState { owner: Owner::TakenOver, ..self }
    }

    /// Cluster API is asked to skip the drain.
    pub(crate) fn excluded_from_drain(self) -> Self {
        MachineState { exclusions: Exclusions { node_drain: true, volume_detach: false }, ..self }
    }
}

/// A managed bootstrap or infrastructure object.
pub(crate) fn provider_object() -> ProviderState {
    ProviderState::new(Owner::ScheduledMachine)
}

impl ProviderState {
    /// Adopted by the existing Machine.
    pub(crate) fn adopted(self) -> Self {
        ProviderState { adopted_by: Some(EXISTING_MACHINE), ..self }
    }

    pub(crate) fn deleting(self) -> Self {
        ProviderState { deleting: true, ..self }
    }
}

impl Reclaim {
    pub(crate) fn finished(machine: u8) -> Self {
        Reclaim { machine, schedule_disabled: false, in_progress: false, count: 1 }
    }

    pub(crate) fn in_progress(machine: u8) -> Self {
        Reclaim { in_progress: true, ..Reclaim::finished(machine) }
    }
}

impl World {
    fn with_object(mut self, edit: impl FnMut(&mut Object)) -> Self {
        self.object.iter_mut().for_each(edit);
        self
    }

    fn with_node(mut self, edit: impl FnMut(&mut NodeState)) -> Self {
        self.servers.node.iter_mut().for_each(edit);
        self
    }

    pub(crate) fn window_open(self, window_open: bool) -> Self {
        World { window_open, ..self }
    }

    pub(crate) fn cluster(mut self, cluster: Cluster) -> Self {
        self.servers.cluster = cluster;
        self
    }

    pub(crate) fn finalizer(self, finalizer: bool) -> Self {
        self.with_object(|it| it.finalizer = finalizer)
    }

    /// Finalizer and intent are stored: the children are about to be created.
    pub(crate) fn intent_recorded(self) -> Self {
        self.finalizer(true).with_object(|it| it.intent = IntentState::Unobserved)
    }

    /// The status includes the intent, and has no refs any more.
    pub(crate) fn intent_observed(self) -> Self {
        self.finalizer(true).with_object(|it| it.intent = IntentState::Observed)
    }

    /// The status has the refs.
    pub(crate) fn refs_stored(self) -> Self {
        self.intent_observed().with_object(|it| it.refs = true)
    }

    pub(crate) fn child_uids(self, child_uids: bool) -> Self {
        self.with_object(|it| it.child_uids = child_uids)
    }

    /// Another client has emptied the status.
    pub(crate) fn empty_status(self) -> Self {
        self.with_object(|it| {
            (it.phase, it.refs, it.child_uids) = (None, false, false);
            if it.intent == IntentState::Observed {
                it.intent = IntentState::Unobserved;
            }
            (it.shutdown_started_at, it.failure, it.reclaim) = (None, None, None);
        })
    }

    pub(crate) fn shutdown_started_at(self, at: Seconds) -> Self {
        self.with_object(|it| it.shutdown_started_at = Some(at))
    }

    pub(crate) fn reclaim(self, reclaim: Reclaim) -> Self {
        self.with_object(|it| it.reclaim = Some(reclaim))
    }

    /// `killIfCommands` is empty.
    pub(crate) fn not_reclaimable(self) -> Self {
        self.with_object(|it| it.requested.reclaimable = false)
    }

    pub(crate) fn machine(mut self, machine: MachineState) -> Self {
        self.servers.machine = Some(machine);
        self
    }

    pub(crate) fn no_machine(mut self) -> Self {
        self.servers.machine = None;
        self
    }

    pub(crate) fn bootstrap(mut self, child: ProviderState) -> Self {
        self.servers.bootstrap = Some(child);
        self
    }

    pub(crate) fn infrastructure(mut self, child: ProviderState) -> Self {
        self.servers.infrastructure = Some(child);
        self
    }

    /// The existing Machine has a schedulable Node.
    pub(crate) fn node(mut self) -> Self {
        self.servers.node = Some(NodeState {
            machine: EXISTING_MACHINE,
            cordon: Cordon::Schedulable,
            reclaim_requested: false,
            agent: AgentState::NONE,
        });
        self
    }

    pub(crate) fn no_node(mut self) -> Self {
        (self.servers.node, self.servers.pod) = (None, None);
        self
    }

    pub(crate) fn cordon(self, cordon: Cordon) -> Self {
        self.with_node(|it| it.cordon = cordon)
    }

    pub(crate) fn agent(self, agent: AgentState) -> Self {
        self.with_node(|it| it.agent = agent)
    }

    pub(crate) fn pod(mut self, pod: PodState) -> Self {
        self.servers.pod = Some(pod);
        self
    }

    pub(crate) fn no_pod(mut self) -> Self {
        self.servers.pod = None;
        self
    }

    /// The owner requests the machine now, or as soon as it has a Node.
    pub(crate) fn reclaim_requested(mut self) -> Self {
        self.pending.reclaim_request = self.servers.node.is_none();
        self.with_node(|it| it.reclaim_requested = true)
    }

    /// The workload cluster is not connected for this many rounds; 0 is forever.
    pub(crate) fn connection(mut self, connection: Connection, reconnect_in: u8) -> Self {
        self.servers.connection = connection;
        self.pending = Pending { reconnect_in, ..self.pending };
        self
    }

    /// An earlier Machine has failed.
    pub(crate) fn backing_off(self) -> Self {
        self.backing_off_until(self.now + RECREATE_BACKOFF)
    }

    pub(crate) fn backing_off_until(self, retry_at: Seconds) -> Self {
        self.with_object(|it| it.failure = Some(Failure { machine: PREVIOUS_MACHINE, count: 1, retry_at }))
    }
}
