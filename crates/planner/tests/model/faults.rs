//! Faults besides crashes and lost messages, and the recovery from them.

use fivespot_planner::observed::Cluster;

use crate::simulation::{Connection, PodState, Seconds, Servers, World};

/// Hours before all instants of the model.
const STEPPED_BACK: Seconds = Seconds(-8 * 60 * 60);

/// A class of faults. Each is explored in a model of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultClass {
    None,
    /// Other clients create objects with the names of the children, take over the Machine, or cordon the Node.
    OtherClients,
    /// The workload cluster becomes unreachable, or the Node can no longer be identified.
    WorkloadCluster,
    /// The Machine fails or disappears.
    Machine,
    /// The Cluster is paused or deleted.
    Cluster,
    /// The spec becomes invalid.
    Spec,
    /// The clock is stepped back.
    Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    OtherCreatesMachine,
    OtherCreatesBootstrap,
    OtherCreatesInfrastructure,
    OtherTakesOverMachine,
    OtherTogglesCordon,
    WorkloadClusterUnreachable,
    NodeNotIdentified,
    MachineFails,
    MachineDisappears,
    ClusterPaused,
    ClusterMissing,
    SpecInvalid,
    /// During a drain that a PodDisruptionBudget blocks.
    ClockStepsBack,
}

impl FaultClass {
    pub(super) fn possible(self, world: &World) -> &'static [Fault] {
        let live = world.servers.live_machine().is_some();
        match self {
            FaultClass::OtherClients if live => {
                &[Fault::OtherTakesOverMachine, Fault::OtherTogglesCordon, Fault::MachineDisappears]
            }
            FaultClass::OtherClients => &[
                Fault::OtherCreatesMachine,
                Fault::OtherCreatesBootstrap,
                Fault::OtherCreatesInfrastructure,
                Fault::OtherTogglesCordon,
            ],
            FaultClass::WorkloadCluster => &[Fault::WorkloadClusterUnreachable, Fault::NodeNotIdentified],
            FaultClass::Machine if live => &[Fault::MachineFails, Fault::MachineDisappears],
            FaultClass::None | FaultClass::Machine => &[],
            FaultClass::Cluster => &[Fault::ClusterPaused, Fault::ClusterMissing],
            FaultClass::Spec => &[Fault::SpecInvalid],
            FaultClass::Clock => &[Fault::ClockStepsBack],
        }
    }

    /// Recovers from the fault, possibly in several steps.
    pub(super) fn recover(self, world: &mut World) {
        match (self, world.servers.connection) {
            (FaultClass::None | FaultClass::Machine | FaultClass::Clock, _)
            | (FaultClass::WorkloadCluster, Connection::Connected) => {}
            (FaultClass::OtherClients, _) => world.servers.delete_unmanaged(),
            (FaultClass::WorkloadCluster, Connection::Unreachable) => {
                world.servers.connection = Connection::Connecting;
            }
            (FaultClass::WorkloadCluster, Connection::Connecting | Connection::Unidentified) => {
                world.servers.connection = Connection::Connected;
                world.caches.node = world.servers.node;
            }
            (FaultClass::Cluster, _) => world.servers.cluster = Cluster::Present,
            (FaultClass::Spec, _) => set_valid(world, true),
        }
    }
}

impl Fault {
    pub(super) fn apply(self, world: &mut World) {
        let servers = &mut world.servers;
        match self {
            Fault::OtherCreatesMachine => servers.create_other_machine(),
            Fault::OtherCreatesBootstrap => Servers::create_other(&mut servers.bootstrap),
            Fault::OtherCreatesInfrastructure => Servers::create_other(&mut servers.infrastructure),
            Fault::OtherTakesOverMachine => servers.take_over_machine(),
            Fault::OtherTogglesCordon => servers.toggle_cordon(),
            Fault::WorkloadClusterUnreachable => servers.connection = Connection::Unreachable,
            Fault::NodeNotIdentified => servers.connection = Connection::Unidentified,
            Fault::MachineFails => servers.fail_machine(),
            Fault::MachineDisappears => servers.lose_machine(),
            Fault::ClusterPaused => servers.cluster = Cluster::Paused,
            Fault::ClusterMissing => servers.cluster = Cluster::Missing,
            Fault::SpecInvalid => set_valid(world, false),
            Fault::ClockStepsBack => {
                servers.pod = servers.pod.map(|_| PodState::Blocked);
                world.now = STEPPED_BACK;
            }
        }
    }
}

fn set_valid(world: &mut World, valid: bool) {
    world.object.iter_mut().for_each(|it| it.requested.valid = valid);
}
