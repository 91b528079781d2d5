//! What happens between two passes: Cluster API, the kubelet, the network and the clock, and what a process remembers.

use jiff::SignedDuration;

use super::parts::NO_AGENT;
use super::{Pod, Reach, World};
use crate::observed::{Child, Cordon, MachineHealth};

/// What passes between two passes.
const A_WHILE: SignedDuration = SignedDuration::from_secs(30);
/// How long no machine is made after one has failed: longer than it takes to remove it.
pub(super) const HOLD_OFF: SignedDuration = SignedDuration::from_secs(150);

impl World {
    pub(in super::super) fn others_act(&mut self) {
        self.now += A_WHILE;
        self.reach = match self.reach {
            Reach::Sought(1) | Reach::Silent(1) | Reach::Answers => Reach::Answers,
            Reach::Sought(more) => Reach::Sought(more - 1),
            Reach::Silent(more) => Reach::Silent(more - 1),
            Reach::Never => Reach::Never,
        };
        self.pod = self.pod.filter(|it| *it != Pod::Leaving);
        for part in [&mut self.bootstrap, &mut self.infrastructure] {
            part.take_if(|it| it.deleting);
        }
        match &mut self.machine {
            Child::Managed(machine) if machine.deleting => self.machine_goes(),
            Child::Managed(machine) if machine.health == MachineHealth::Provisioning => {
                machine.health = MachineHealth::Running;
                machine.node = Some("n".to_owned());
                for part in [&mut self.bootstrap, &mut self.infrastructure].into_iter().flatten() {
                    part.adopted_by = Some(machine.uid.clone());
                }
                self.node.get_or_insert(Cordon::Schedulable);
            }
            Child::Managed(_) | Child::Absent | Child::Unmanaged(_) | Child::NotRead => {}
        }
        self.object_goes();
    }

    /// An object that is deleted without our finalizer goes when nothing depends on it any more.
    fn object_goes(&mut self) {
        self.object_gone |= self.asked.deleted && !self.finalizer && self.nothing_of_ours();
    }

    fn machine_goes(&mut self) {
        // A request is an annotation of the Node, and goes with it.
        self.asked.reclaim &= self.node.is_none();
        (self.machine, self.bootstrap, self.infrastructure) = (Child::Absent, None, None);
        // What the agent is told is the Node's too.
        (self.node, self.pod, self.agent) = (None, None, NO_AGENT);
    }

    /// A machine that fails is remembered, until another one has made it.
    pub(super) fn remember(&mut self) {
        let Some(machine) = self.machine.managed() else { return };
        let seen = self.reach == Reach::Answers && self.node.is_some();
        match machine.health {
            MachineHealth::Failed(_) => self.recreate_backoff = self.recreate_backoff.or(Some(self.now + HOLD_OFF)),
            MachineHealth::Running if seen => self.recreate_backoff = None,
            MachineHealth::Running | MachineHealth::Provisioning => {}
        }
    }
}
