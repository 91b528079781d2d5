//! Where each initial state has to end, according to the design and without regard to how `decide` works.
//!
//! What holds of every world at rest is checked by `unexpected`; this compares the end with the initial state.

use fivespot_api::Phase;
use fivespot_planner::observed::{Cluster, Cordon};

use crate::simulation::{Connection, Object, Owner, PodState, ProviderState, World};
use crate::states::has_reclaim_request;

/// How a world ends if nothing else is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The object is deleted, and nothing is left.
    Deleted,
    /// No child is left.
    Removed(Phase),
    /// One machine exists.
    Running,
    /// No managed machine exists, and none was created.
    NotCreated(Phase),
    /// The machine stays, and nothing was done to it.
    Untouched(Phase),
    /// The machine stays, and a shutdown that had started is cancelled.
    Cancelled(Phase),
    /// The Machine delete was issued, and Cluster API does not complete it while the Cluster is paused.
    Waiting(Phase),
}

impl Ending {
    pub(crate) fn of(start: &World) -> Self {
        let requested = start.object.unwrap().requested;
        let reclaimed = is_reclaimed(start);
        let forced = requested.kill_switch || reclaimed;
        let live = start.servers.live_machine().is_some();
        let exists = start.servers.managed_machine().is_some();
        let is_paused = start.servers.cluster == Cluster::Paused;
        // The Machine of a paused Cluster is deleted only by a force removal.
        let held = is_paused && live;
        let name_taken = is_name_taken(start);
        if is_paused && exists && (forced || !live) {
            return Ending::Waiting(if reclaimed { Phase::EmergencyRemove } else { Phase::ShuttingDown });
        }
        match (requested.valid, start.window_open) {
            _ if requested.deleted && held => Ending::Untouched(Phase::ShuttingDown),
            _ if requested.deleted => Ending::Deleted,
            // A reclaim is completed first; the kill switch acts afterwards.
            _ if requested.kill_switch => Ending::Removed(Phase::Terminated),
            _ if reclaimed => Ending::Removed(Phase::Disabled),
            _ if !requested.enabled && live => Ending::Cancelled(Phase::Disabled),
            _ if !requested.enabled => Ending::NotCreated(Phase::Disabled),
            (false, _) if live => Ending::Untouched(Phase::Error),
            (false, _) => Ending::NotCreated(Phase::Error),
            (true, false) if held => Ending::Untouched(Phase::ShuttingDown),
            (true, false) => Ending::Removed(Phase::Inactive),
            (true, true) if name_taken => Ending::NotCreated(Phase::Error),
            (true, true) if has_usable_machine(start) => Ending::Running,
            (true, true) if held => Ending::Untouched(Phase::ShuttingDown),
            (true, true) => match start.servers.cluster {
                Cluster::Present => Ending::Running,
                Cluster::Missing | Cluster::Deleting => Ending::NotCreated(Phase::Error),
                Cluster::Paused => Ending::NotCreated(Phase::Pending),
            },
        }
    }
}

fn has_usable_machine(world: &World) -> bool {
    world.servers.live_machine().is_some_and(|it| !it.failed)
}

/// Whether an unmanaged object has the name of a child that would have to be created. For provider objects this is known
/// once their refs are stored, which happens when the Cluster accepts a Machine.
fn is_name_taken(world: &World) -> bool {
    let unmanaged = |it: ProviderState| it.owner != Owner::ScheduledMachine;
    let reads_providers = world.object.is_some_and(|it| it.has_refs()) || world.servers.cluster == Cluster::Present;
    match world.servers.machine {
        Some(machine) => !machine.is_managed(),
        None => reads_providers && world.servers.providers().into_iter().flatten().any(unmanaged),
    }
}

/// Whether the machine is reclaimed: a stored reclaim is completed, and a request counts once it is observed on the Node of
/// a Machine that was not reclaimed before.
fn is_reclaimed(start: &World) -> bool {
    let object = start.object.unwrap();
    if object.reclaim_in_progress() {
        return true;
    }
    let requested = object.requested;
    let servers = &start.servers;
    let is_connected = matches!(servers.connection, Connection::Connected | Connection::Connecting);
    let never_connected = !is_connected && start.pending.reconnect_in == 0;
    if !has_reclaim_request(start) || !requested.reclaimable || never_connected || was_reclaimed(start) {
        return false;
    }
    // A request that was on the Node before the agent was rolled out is left over from an earlier Machine.
    if servers.node.is_some_and(|it| it.reclaim_requested && !it.agent.for_machine) {
        return false;
    }
    let is_paused = servers.cluster == Cluster::Paused;
    let scheduled = requested.enabled && requested.valid;
    match servers.managed_machine() {
        // If the Node cannot be read yet, the machine has to exist until it can.
        Some(_) if servers.node.is_some() => {
            let stays = is_paused || (servers.live_machine().is_some() && !requested.kill_switch);
            servers.connection == Connection::Connected || stays
        }
        // The owner requests it when it joins.
        Some(machine) if !machine.joined && has_usable_machine(start) => {
            let is_removed = requested.kill_switch || requested.deleted || (scheduled && !start.window_open);
            !is_paused && !is_removed
        }
        Some(_) if has_usable_machine(start) => false,
        Some(_) | None => {
            let is_created = scheduled && start.window_open && servers.cluster == Cluster::Present;
            is_created && !requested.deleted && !requested.kill_switch && !is_name_taken(start)
        }
    }
}

fn was_reclaimed(world: &World) -> bool {
    let reclaimed = world.object.and_then(|it| it.reclaim).map(|it| it.machine);
    reclaimed.is_some() && reclaimed == world.servers.managed_machine().map(|it| it.uid)
}

/// A difference, if the flag is set.
type Finding = (bool, &'static str);

/// What is not as expected at the end, compared with the initial state.
pub(crate) fn differences(expected: Ending, start: &World, end: &World) -> Vec<&'static str> {
    let findings = match (expected, end.object) {
        (Ending::Deleted, None) => Vec::new(),
        (Ending::Deleted, Some(_)) => vec![(true, "the object exists")],
        (_, None) => vec![(true, "the object does not exist")],
        (Ending::Removed(phase), Some(object)) => [vec![wrong_phase(object, phase)], reclaim(start, &object)].concat(),
        (Ending::Running, Some(object)) => [vec![wrong_phase(object, Phase::Active)], running(start, end)].concat(),
        (Ending::NotCreated(phase), Some(object)) => {
            [vec![wrong_phase(object, phase)], not_created(start, end)].concat()
        }
        (Ending::Untouched(phase), Some(object)) => [vec![wrong_phase(object, phase)], untouched(start, end)].concat(),
        (Ending::Cancelled(phase), Some(object)) => {
            vec![wrong_phase(object, phase), (!is_same_machine(start, end), "another Machine")]
        }
        (Ending::Waiting(phase), Some(object)) => {
            let deleting = end.servers.managed_machine().is_some_and(|it| it.deleting);
            let findings = vec![wrong_phase(object, phase), (!deleting, "the delete was not issued")];
            [findings, reclaim(start, &object)].concat()
        }
    };
    let findings = findings.into_iter().chain([(unmanaged(start) != unmanaged(end), "an unmanaged object changed")]);
    findings.filter_map(|(differs, what)| differs.then_some(what)).collect()
}

/// The objects that only another client may delete.
fn unmanaged(world: &World) -> (Option<u8>, [bool; 2]) {
    let machine = world.servers.machine.filter(|it| !it.is_managed()).map(|it| it.uid);
    let is_other = |it: ProviderState| it.owner == Owner::Other && !it.deleting;
    (machine, world.servers.providers().map(|it| it.is_some_and(is_other)))
}

fn wrong_phase(object: Object, expected: Phase) -> Finding {
    (object.phase != Some(expected), "wrong phase")
}

fn reclaim(start: &World, object: &Object) -> Vec<Finding> {
    if !is_reclaimed(start) {
        return Vec::new();
    }
    let before = start.object.unwrap();
    let count = |object: &Object| object.reclaim.map_or(0, |it| it.count);
    let started = u8::from(!before.reclaim_in_progress());
    let disabled = object.reclaim.is_some_and(|it| it.schedule_disabled);
    let is_deleted = before.requested.deleted;
    vec![
        (object.requested.enabled && !is_deleted, "the machine would come back by itself"),
        (!disabled && !is_deleted, "the status does not report the reclaim"),
        (count(object) != count(&before) + started, "it was not reclaimed once"),
    ]
}

fn running(start: &World, end: &World) -> Vec<Finding> {
    let stays = has_usable_machine(start);
    vec![
        (stays && !is_same_machine(start, end), "a usable Machine was replaced"),
        (!stays && end.created != start.created + 1, "not exactly one Machine was created"),
    ]
}

fn not_created(start: &World, end: &World) -> Vec<Finding> {
    let requested = start.object.unwrap().requested;
    let removed = is_removal_issued(start);
    let machine_unmanaged = end.servers.machine.is_some_and(|it| !it.is_managed());
    let stays = machine_unmanaged || ((!requested.enabled || !requested.valid) && !removed);
    vec![
        (end.servers.managed_machine().is_some() || end.created > start.created, "a Machine exists"),
        (stays && provider_objects(end) != provider_objects(start), "provider objects changed"),
        (removed && provider_objects(end) != [None; 2], "something of a removed machine is left"),
        (end.object.is_some_and(|it| it.shutdown_started_at.is_some()), "a shutdown that is over is still stored"),
    ]
}

/// Whether a shutdown can no longer be cancelled.
fn is_removal_issued(world: &World) -> bool {
    let started = world.object.is_some_and(|it| it.shutdown_started_at.is_some());
    world.servers.machine.map_or(started, |it| it.is_managed() && it.deleting)
}

fn untouched(start: &World, end: &World) -> Vec<Finding> {
    let exclusions = |world: &World| world.servers.live_machine().map(|it| it.exclusions);
    // What joins meanwhile is schedulable and has a pod.
    let cordon = |world: &World| world.servers.node.map_or(Cordon::Schedulable, |it| it.cordon);
    let joined = start.servers.node.is_none() && end.servers.node.is_some();
    let pod_leaves = start.servers.pod == Some(PodState::Terminating);
    vec![
        (!is_same_machine(start, end), "another Machine"),
        (exclusions(start) != exclusions(end), "exclusions changed"),
        (cordon(start) != cordon(end), "the cordon changed"),
        (start.servers.pod != end.servers.pod && !pod_leaves && !joined, "the pod changed"),
        (provider_objects(start) != provider_objects(end), "provider objects changed"),
        (
            end.object.is_some_and(|it| it.shutdown_started_at.is_some()),
            "a shutdown is stored, but pods are not evicted",
        ),
    ]
}

fn is_same_machine(start: &World, end: &World) -> bool {
    let uid = |world: &World| world.servers.live_machine().map(|it| it.uid);
    uid(start).is_some() && uid(start) == uid(end) && start.created == end.created
}

/// The provider objects that are not being deleted.
fn provider_objects(world: &World) -> [Option<Owner>; 2] {
    let owner = |it: ProviderState| (!it.deleting).then_some(it.owner);
    world.servers.providers().map(|it| it.and_then(owner))
}
