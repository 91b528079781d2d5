//! The other actors: Cluster API, the kubelet, garbage collection, the owner of the machine, and other clients.

use fivespot_planner::observed::{Cluster, Cordon};
use jiff::SignedDuration;

use super::fixtures::OTHER_MACHINE;
use super::state::{AgentState, Connection, MachineState, NodeState, Owner, PodState, ProviderState, Servers, World};

/// Backoff after a Machine failed: longer than its removal takes.
pub(crate) const RECREATE_BACKOFF: SignedDuration = SignedDuration::from_secs(150);

impl World {
    /// Every actor completes what it can.
    pub(crate) fn others_act(&mut self) {
        if self.pending.reconnect_in > 0 {
            self.pending.reconnect_in -= 1;
            if self.pending.reconnect_in == 0 {
                self.servers.connection = Connection::Connected;
            }
        }
        self.servers.others_act();
        if let Some(node) = &mut self.servers.node
            && node.agent == AgentState::ROLLED_OUT
            && std::mem::take(&mut self.pending.reclaim_request)
        {
            node.reclaim_requested = true;
        }
        // Foreground deletion waits for the children even without a finalizer.
        let collected = self.servers.nothing_managed();
        self.object = self.object.filter(|it| !(it.requested.deleted && !it.finalizer && collected));
    }
}

impl Servers {
    fn others_act(&mut self) {
        if self.pod == Some(PodState::Terminating) {
            self.pod = None;
        }
        for child in self.providers_mut() {
            *child = child.filter(|it| !it.deleting);
        }
        match self.machine {
            // Cluster API ignores the Machines of a paused Cluster.
            Some(_) if self.cluster == Cluster::Paused => {}
            Some(machine) if machine.deleting => self.complete_deletion(machine),
            Some(machine) if !machine.joined && !machine.failed && machine.owner != Owner::Other => {
                self.join(machine);
            }
            Some(_) | None => {}
        }
    }

    fn join(&mut self, machine: MachineState) {
        self.machine = Some(MachineState { joined: true, ..machine });
        for child in self.providers_mut() {
            *child = child.map(|it| ProviderState { adopted_by: Some(machine.uid), ..it });
        }
        self.node = Some(NodeState {
            machine: machine.uid,
            cordon: Cordon::Schedulable,
            reclaim_requested: false,
            agent: AgentState::NONE,
        });
        self.pod = Some(PodState::Evictable);
    }

    /// Cluster API deletes the provider objects that the Machine has adopted or refers to.
    fn complete_deletion(&mut self, machine: MachineState) {
        for child in self.providers_mut() {
            *child = child.filter(|it| it.owner == Owner::Other || it.adopted_by.is_some_and(|by| by != machine.uid));
        }
        self.lose_machine();
    }

    /// The Machine disappears, for example because a user removes its finalizers. What it has adopted stays.
    pub(crate) fn lose_machine(&mut self) {
        (self.machine, self.node, self.pod) = (None, None, None);
    }

    pub(crate) fn fail_machine(&mut self) {
        self.machine = self.machine.map(|it| MachineState { failed: true, ..it });
    }

    pub(crate) fn take_over_machine(&mut self) {
        self.machine = self.machine.map(|it| MachineState { owner: Owner::TakenOver, ..it });
    }

    /// Another client creates a Machine of this name.
    pub(crate) fn create_other_machine(&mut self) {
        self.machine.get_or_insert(MachineState::new(OTHER_MACHINE, Owner::Other));
    }

    /// Another client creates a provider object of this name.
    pub(crate) fn create_other(child: &mut Option<ProviderState>) {
        child.get_or_insert(ProviderState::new(Owner::Other));
    }

    /// Another client cordons a schedulable Node, or uncordons a cordoned one.
    pub(crate) fn toggle_cordon(&mut self) {
        self.node = self.node.map(|it| {
            let cordon = match it.cordon {
                Cordon::Schedulable => Cordon::ByOther,
                Cordon::ByOther => Cordon::Schedulable,
                Cordon::ByController => Cordon::Reverted,
                Cordon::Reverted => Cordon::ByController,
            };
            NodeState { cordon, ..it }
        });
    }

    /// Other clients delete their objects.
    pub(crate) fn delete_unmanaged(&mut self) {
        if let Some(machine) = self.machine.filter(|it| !it.is_managed()) {
            match machine.owner {
                Owner::TakenOver => self.complete_deletion(machine),
                Owner::ScheduledMachine | Owner::Other => self.machine = None,
            }
        }
        for child in self.providers_mut() {
            *child = child.filter(|it| it.owner == Owner::ScheduledMachine);
        }
    }
}
