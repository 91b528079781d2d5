//! Where the spec says that a world comes to rest.

use fivespot_api::Phase;
use fivespot_planner::observed::{Cluster, Cordon, Exclusions};

use super::state::{MachineState, Object, ProviderState, Reach, There, World};

pub(super) fn is_right(world: &World) -> bool {
    let there = &world.there;
    let Some(object) = world.object else { return there.nothing_of_ours() };
    if let Some(is_right) = is_held_up(&object, world) {
        return is_right;
    }
    let is = |phase: Phase| object.phase == Some(phase);
    let gone = there.nothing_of_ours() && !object.refs && object.shutdown.is_none();
    let asked = object.asked;
    if asked.deleted {
        false
    } else if asked.killed {
        is(Phase::Terminated) && gone
    } else if !asked.enabled {
        let kept = |it: MachineState| is_free(it, there) && (!asked.readable || is_looked_after(there));
        is(Phase::Disabled) && object.shutdown.is_none() && there.our_machine().is_none_or(kept)
    } else if !asked.readable {
        is(Phase::Error) && there.our_machine().is_none_or(|it| !it.deleting)
    } else if world.window {
        is_running(&object, there)
    } else {
        is(Phase::Inactive) && gone
    }
}

/// Where a machine that should go stands while its Cluster is paused, when Cluster API finishes nothing.
fn is_held_up(object: &Object, world: &World) -> Option<bool> {
    let machine = world.there.our_machine().filter(|_| world.there.cluster == Cluster::Paused)?;
    let asked = object.asked;
    let ejected = asked.killed || object.is_reclaiming();
    let closed = asked.enabled && asked.readable && !world.window;
    let leaves = matches!(object.phase, Some(Phase::ShuttingDown | Phase::EmergencyRemove));
    (machine.deleting || ejected || asked.deleted || closed).then_some(leaves && (machine.deleting || !ejected))
}

/// Whether the window is open and there is a machine, or what is in its way is told.
fn is_running(object: &Object, there: &There) -> bool {
    let providers = [there.bootstrap, there.infrastructure];
    let stands_as = match there.machine {
        Some(machine) if !machine.is_ours() => Phase::Error,
        Some(machine) => {
            let own = |it: ProviderState| {
                !there.is_foreign(it) && !it.deleting && it.adopted_by == machine.joined.then_some(machine.uid)
            };
            let complete = providers.into_iter().all(|it| it.is_some_and(own));
            return object.phase == Some(Phase::Active)
                && object.shutdown.is_none()
                && complete
                && is_free(machine, there)
                && is_looked_after(there)
                && !machine.failed;
        }
        None if providers.into_iter().flatten().any(|it| there.is_foreign(it)) => Phase::Error,
        None => match there.cluster {
            Cluster::Missing | Cluster::Deleting => Phase::Error,
            Cluster::Paused => Phase::Pending,
            Cluster::Present => return false,
        },
    };
    object.phase == Some(stands_as)
}

/// Whether the agent is on the Node, as far as that can be reached, and nothing that it asked for is left there.
fn is_looked_after(there: &There) -> bool {
    there.reach != Reach::Connected || there.node.is_none_or(|it| it.agent && !it.request)
}

/// Whether nothing is left of a shutdown that was abandoned. Nobody can open a Node that cannot be reached.
fn is_free(machine: MachineState, there: &There) -> bool {
    let closed = there.node.is_some_and(|it| matches!(it.cordon, Cordon::ByController | Cordon::Reverted));
    !machine.deleting && machine.exclusions == Exclusions::default() && !(closed && there.reach == Reach::Connected)
}
