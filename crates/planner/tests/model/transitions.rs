//! What can happen next.

use super::faults::{Fault, FaultClass};
use super::users::Edit;
use crate::simulation::{Connection, Seconds, Standby, World};

/// The instants of the model. A shutdown that starts at one has exceeded the drain timeout at the next, and the shutdown
/// timeout at the one after.
const INSTANTS: [Seconds; 3] = [Seconds(0), Seconds(3 * 60), Seconds(10 * 60)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transition {
    StartReconcile,
    SendRequest,
    Crash,
    /// A request does not arrive.
    LoseRequest,
    /// A request is executed, but its response does not arrive.
    LoseResponse,
    /// A watch event of the ScheduledMachine arrives.
    WatchObject,
    WatchMachine,
    WatchNode,
    /// The standby takes over.
    TakeOver,
    /// A watch event of the ScheduledMachine arrives at the standby.
    StandbyWatchesObject,
    StandbyWatchesMachine,
    StandbyWatchesNode,
    OthersAct,
    TimePasses,
    Edit(Edit),
    Fault(Fault),
    Recover,
}

impl Transition {
    pub(crate) fn possible(world: &World, faults: FaultClass) -> Vec<Transition> {
        let Some(object) = world.object else { return Vec::new() };
        let mut transitions =
            vec![Transition::WatchObject, Transition::WatchMachine, Transition::OthersAct, Transition::Recover];
        transitions.extend(of_controller(world));
        if let Standby::Watching(_) = world.standby {
            transitions.extend([
                Transition::TakeOver,
                Transition::StandbyWatchesObject,
                Transition::StandbyWatchesMachine,
                Transition::StandbyWatchesNode,
            ]);
        }
        if world.servers.connection == Connection::Connected {
            transitions.push(Transition::WatchNode);
        }
        let is_waiting =
            object.shutdown_started_at.is_some() || object.failure.is_some_and(|it| it.retry_at > world.now);
        if next_instant(world).is_some() && is_waiting {
            transitions.push(Transition::TimePasses);
        }
        if world.budget.edits > 0 {
            transitions.extend(Edit::possible(world).into_iter().map(Transition::Edit));
        }
        if world.budget.faults > 0 {
            transitions.extend(faults.possible(world).iter().copied().map(Transition::Fault));
        }
        transitions
    }

    /// The world afterwards, if it differs.
    pub(crate) fn next(self, world: &World, faults: FaultClass) -> Option<World> {
        let mut next = *world;
        self.apply(&mut next, faults);
        if next == *world {
            return None;
        }
        let budget = &mut next.budget;
        match self {
            Transition::Edit(_) => budget.edits -= 1,
            Transition::Fault(_) => budget.faults -= 1,
            Transition::Crash => budget.crashes -= 1,
            Transition::LoseRequest | Transition::LoseResponse => budget.losses -= 1,
            Transition::TakeOver => budget.take_overs -= 1,
            Transition::StartReconcile
            | Transition::SendRequest
            | Transition::WatchObject
            | Transition::WatchMachine
            | Transition::WatchNode
            | Transition::StandbyWatchesObject
            | Transition::StandbyWatchesMachine
            | Transition::StandbyWatchesNode
            | Transition::OthersAct
            | Transition::TimePasses
            | Transition::Recover => {}
        }
        Some(next)
    }

    fn apply(self, world: &mut World, faults: FaultClass) {
        match self {
            Transition::StartReconcile => world.start_reconcile(),
            Transition::SendRequest => world.send_next(),
            Transition::Crash => {
                world.restart();
                if faults == FaultClass::WorkloadCluster {
                    world.servers.connection = Connection::Connecting;
                }
            }
            Transition::LoseRequest => world.reconcile = None,
            Transition::LoseResponse => world.lose_response(),
            Transition::WatchObject => world.caches.object = world.object,
            Transition::WatchMachine => world.caches.machine = world.servers.machine,
            Transition::WatchNode => world.caches.node = world.servers.node,
            Transition::TakeOver => world.take_over(),
            Transition::StandbyWatchesObject => world.standby.watch(|it| it.object = world.object),
            Transition::StandbyWatchesMachine => world.standby.watch(|it| it.machine = world.servers.machine),
            Transition::StandbyWatchesNode => world.standby.watch(|it| it.node = world.servers.node),
            Transition::OthersAct => world.others_act(),
            Transition::TimePasses => world.now = next_instant(world).unwrap_or(world.now),
            Transition::Edit(edit) => edit.apply(world),
            Transition::Fault(fault) => fault.apply(world),
            Transition::Recover => faults.recover(world),
        }
    }
}

fn next_instant(world: &World) -> Option<Seconds> {
    INSTANTS.into_iter().find(|it| *it > world.now)
}

fn of_controller(world: &World) -> Vec<Transition> {
    if world.reconcile.is_none() {
        return vec![Transition::StartReconcile];
    }
    let mut transitions = vec![Transition::SendRequest];
    if world.budget.crashes > 0 {
        transitions.push(Transition::Crash);
    }
    if world.budget.losses > 0 {
        transitions.extend([Transition::LoseRequest, Transition::LoseResponse]);
    }
    transitions
}
