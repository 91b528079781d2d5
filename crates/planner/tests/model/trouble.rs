//! What goes wrong in a world, besides crashes and lost answers, and how it comes right again.

use fivespot_planner::observed::Cluster;

use super::state::{Lost, Reach, There, World};

/// A kind of trouble. Each is looked at in a world of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Nothing,
    /// Others have things of our names, or take ours.
    Strangers,
    /// The workload cluster is lost, and found again.
    Workload,
    /// Machines fail, or vanish.
    Machine,
    /// The Cluster is paused, or missing, and comes back.
    Cluster,
    /// The spec does not parse, and is mended.
    Spec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mishap {
    StrangerTakesMachine,
    StrangerTakesBootstrap,
    StrangerTakesInfrastructure,
    StrangerTakesOver,
    StrangerTurnsNode,
    WorkloadIsLost,
    MachineFails,
    MachineVanishes,
    ClusterIsPaused,
    ClusterIsMissing,
    SpecIsGarbled,
}

impl Trouble {
    /// What can go wrong now.
    pub(super) fn mishaps(self, world: &World) -> &'static [Mishap] {
        let alive = world.there.our_machine().is_some_and(|it| !it.deleting);
        match self {
            Trouble::Strangers if alive => {
                &[Mishap::StrangerTakesOver, Mishap::StrangerTurnsNode, Mishap::MachineVanishes]
            }
            Trouble::Strangers => &[
                Mishap::StrangerTakesMachine,
                Mishap::StrangerTakesBootstrap,
                Mishap::StrangerTakesInfrastructure,
                Mishap::StrangerTurnsNode,
            ],
            Trouble::Workload => &[Mishap::WorkloadIsLost],
            Trouble::Machine if alive => &[Mishap::MachineFails, Mishap::MachineVanishes],
            Trouble::Nothing | Trouble::Machine => &[],
            Trouble::Cluster => &[Mishap::ClusterIsPaused, Mishap::ClusterIsMissing],
            Trouble::Spec => &[Mishap::SpecIsGarbled],
        }
    }

    /// Brings things right again, or a step nearer to it.
    pub(super) fn mend(self, world: &mut World) {
        match (self, world.there.reach) {
            (Trouble::Nothing, _) | (Trouble::Workload, Reach::Connected) => {}
            (Trouble::Strangers, _) => world.there.strangers_leave(),
            (Trouble::Workload, Reach::Unreachable) => world.there.reach = Reach::Sought,
            (Trouble::Workload, Reach::Sought) => {
                world.there.reach = Reach::Connected;
                world.caches.node = world.there.node;
            }
            (Trouble::Machine, _) => world.lost = world.lost.map(|it| Lost { waits: false, ..it }),
            (Trouble::Cluster, _) => world.there.cluster = Cluster::Present,
            (Trouble::Spec, _) => set_readable(world, true),
        }
    }
}

impl Mishap {
    pub(super) fn happen(self, world: &mut World) {
        let there = &mut world.there;
        match self {
            Mishap::StrangerTakesMachine => there.stranger_takes_machine(),
            Mishap::StrangerTakesBootstrap => There::stranger_takes(&mut there.bootstrap),
            Mishap::StrangerTakesInfrastructure => There::stranger_takes(&mut there.infrastructure),
            Mishap::StrangerTakesOver => there.machine_is_taken_over(),
            Mishap::StrangerTurnsNode => there.stranger_turns_node(),
            Mishap::WorkloadIsLost => there.reach = Reach::Unreachable,
            Mishap::MachineFails => there.machine_fails(),
            Mishap::MachineVanishes => there.machine_vanishes(),
            Mishap::ClusterIsPaused => there.cluster = Cluster::Paused,
            Mishap::ClusterIsMissing => there.cluster = Cluster::Missing,
            Mishap::SpecIsGarbled => set_readable(world, false),
        }
    }
}

fn set_readable(world: &mut World, readable: bool) {
    if let Some(object) = &mut world.object {
        object.asked.readable = readable;
    }
}
