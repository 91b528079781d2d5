//! Cluster API, the kubelet, and strangers.

use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::{Cluster, Cordon};

use super::state::{MachineState, NodeState, ProviderState, There, Whose};

/// The uid of a Machine that a stranger makes.
const STRANGER: u8 = 99;

impl There {
    /// Cluster API and the kubelet finish what they can.
    pub(crate) fn others_finish(&mut self) {
        if self.pod == Some(DrainAction::Wait) {
            self.pod = None;
        }
        for child in [&mut self.bootstrap, &mut self.infrastructure] {
            *child = child.filter(|it| !it.deleting);
        }
        match self.machine {
            // Cluster API does nothing for a Cluster that is paused.
            Some(_) if self.cluster == Cluster::Paused => {}
            Some(machine) if machine.deleting => self.machine_goes(machine),
            Some(machine) if !machine.joined && !machine.failed && machine.whose != Whose::Strangers => {
                self.machine_joins(machine);
            }
            Some(_) | None => {}
        }
    }

    fn machine_joins(&mut self, machine: MachineState) {
        self.machine = Some(MachineState { joined: true, ..machine });
        for child in [&mut self.bootstrap, &mut self.infrastructure] {
            *child = child.map(|it| ProviderState { adopted_by: Some(machine.uid), ..it });
        }
        self.node = Some(NodeState { of: machine.uid, cordon: Cordon::Schedulable, request: false, agent: false });
        self.pod = Some(DrainAction::Evict);
    }

    /// A Machine takes with it what it has adopted, or what it was made with.
    fn machine_goes(&mut self, machine: MachineState) {
        for child in [&mut self.bootstrap, &mut self.infrastructure] {
            *child =
                child.filter(|it| it.whose == Whose::Strangers || it.adopted_by.is_some_and(|by| by != machine.uid));
        }
        self.machine_vanishes();
    }

    /// Somebody takes the Machine away by force, and what it has adopted stays.
    pub(crate) fn machine_vanishes(&mut self) {
        (self.machine, self.node, self.pod) = (None, None, None);
    }

    pub(crate) fn machine_fails(&mut self) {
        self.machine = self.machine.map(|it| MachineState { failed: true, ..it });
    }

    pub(crate) fn machine_is_taken_over(&mut self) {
        self.machine = self.machine.map(|it| MachineState { whose: Whose::TakenOver, ..it });
    }

    pub(crate) fn stranger_takes_machine(&mut self) {
        self.machine.get_or_insert(MachineState::new(STRANGER, Whose::Strangers));
    }

    pub(crate) fn stranger_takes(child: &mut Option<ProviderState>) {
        child.get_or_insert(ProviderState::new(Whose::Strangers));
    }

    /// Somebody closes a Node that is open, or opens one that is closed.
    pub(crate) fn stranger_turns_node(&mut self) {
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

    /// All that is somebody else's goes.
    pub(crate) fn strangers_leave(&mut self) {
        if let Some(machine) = self.machine.filter(|it| !it.is_ours()) {
            match machine.whose {
                Whose::TakenOver => self.machine_goes(machine),
                Whose::Ours | Whose::Strangers => self.machine = None,
            }
        }
        for child in [&mut self.bootstrap, &mut self.infrastructure] {
            *child = child.filter(|it| it.whose == Whose::Ours);
        }
    }
}
