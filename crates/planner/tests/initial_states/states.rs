//! The initial states: every stage of a machine's life, times everything that can be requested.

use fivespot_planner::observed::{Cluster, Cordon};

use crate::simulation::builders::{existing_machine, provider_object};
use crate::simulation::fixtures::{EXISTING_MACHINE, OTHER_MACHINE, PREVIOUS_MACHINE};
use crate::simulation::{
    AgentState, ConfigState, Connection, MachineState, Owner, PodState, ProviderState, Reclaim, Requested, Seconds,
    World,
};

/// Further away than any deadline: the clock was stepped back, or a user wrote the status.
const FUTURE: Seconds = Seconds(8 * 60 * 60);

pub(crate) fn initial_states() -> impl Iterator<Item = World> {
    let clusters = [Cluster::Present, Cluster::Missing, Cluster::Deleting, Cluster::Paused];
    // Open, closed, and a spec that does not parse.
    let schedules = [(true, true), (false, true), (true, false)];
    (0..16_u8).flat_map(move |bits| {
        let bit = |at: u8| bits & (1 << at) != 0;
        let (deleted, kill_switch, enabled, reclaim_requested) = (bit(0), bit(1), bit(2), bit(3));
        let new = schedules.map(|(window_open, valid)| {
            let requested = Requested { deleted, kill_switch, enabled, valid, reclaimable: true };
            World::new(requested).window_open(window_open)
        });
        new.into_iter()
            .flat_map(move |new| clusters.map(|cluster| new.cluster(cluster)))
            .flat_map(|new| Stages::of(new).all())
            .filter(is_possible)
            .map(move |world| if reclaim_requested { world.reclaim_requested() } else { world })
            .map(|mut world| {
                world.sync_caches();
                world
            })
    })
}

/// A deleted object without finalizer exists only while a child blocks its foreground deletion. The controller cannot know
/// the kinds of the children if neither the status nor the spec names them.
fn is_possible(world: &World) -> bool {
    let object = world.object.unwrap();
    let has_machine = world.servers.managed_machine().is_some();
    let is_collected = object.requested.deleted && !object.finalizer && !has_machine;
    let is_unknown = has_machine && !object.has_refs() && !object.requested.valid;
    !is_collected && !is_unknown
}

pub(crate) fn has_reclaim_request(world: &World) -> bool {
    world.pending.reclaim_request || world.servers.node.is_some_and(|it| it.reclaim_requested)
}

/// Whether two worlds differ only in times, in uids, and in how they came about.
pub(crate) fn is_equivalent(a: &World, b: &World) -> bool {
    match (a.object, b.object) {
        (Some(_), Some(_)) => normalized(a) == normalized(b),
        (None, None) => a.servers.nothing_managed() == b.servers.nothing_managed(),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn normalized(world: &World) -> World {
    let mut world = *world;
    (world.now, world.created) = (Seconds::ZERO, 0);
    world.enabled_since_reclaim = true;
    let uid = EXISTING_MACHINE;
    let in_progress = !world.servers.nothing_managed();
    if let Some(object) = &mut world.object {
        // Where nothing is left, the expected end says whether the start of the shutdown may still be stored.
        object.shutdown_started_at = object.shutdown_started_at.filter(|_| in_progress).map(|_| Seconds::ZERO);
        object.failure.iter_mut().for_each(|it| (it.machine, it.retry_at) = (uid, Seconds::ZERO));
        object.reclaim.iter_mut().for_each(|it| it.machine = uid);
    }
    world.servers.machine.iter_mut().filter(|it| it.is_managed()).for_each(|it| it.uid = uid);
    world.servers.node.iter_mut().for_each(|it| it.machine = uid);
    // Which Machine a withdrawn agent was rolled out for has no effect.
    world.servers.node.iter_mut().filter(|it| it.agent.is_withdrawn()).for_each(|it| it.agent = AgentState::NONE);
    for child in world.servers.providers_mut().into_iter().flatten() {
        child.adopted_by = child.adopted_by.map(|_| uid);
    }
    world.sync_caches();
    world
}

/// Stages in the life of a machine that the initial states are variations of.
struct Stages {
    /// No reconcile yet.
    new: World,
    /// The status has the refs, and no child exists.
    creating: World,
    provisioning: World,
    running: World,
    draining: World,
    /// The Machine delete was issued.
    deleting: World,
}

impl Stages {
    fn of(new: World) -> Self {
        let creating = new.refs_stored();
        let provisioning = creating
            .child_uids(true)
            .machine(existing_machine())
            .bootstrap(provider_object())
            .infrastructure(provider_object());
        let running = provisioning
            .machine(existing_machine().joined())
            .bootstrap(provider_object().adopted())
            .infrastructure(provider_object().adopted())
            .node()
            .agent(AgentState::ROLLED_OUT)
            .pod(PodState::Evictable);
        let draining = running.shutdown_started_at(Seconds::ZERO).cordon(Cordon::ByController);
        let deleting = draining.machine(existing_machine().joined().excluded_from_drain().deleting());
        Stages { new, creating, provisioning, running, draining, deleting }
    }

    fn all(&self) -> Vec<World> {
        [
            self.before_machine(),
            self.with_machine(),
            self.shutting_down(),
            self.failed(),
            self.reclaimed(),
            self.name_taken(),
            self.disconnected(),
            self.agents(),
        ]
        .concat()
    }

    fn before_machine(&self) -> Vec<World> {
        let Stages { new, creating, provisioning, .. } = *self;
        let recorded = new.intent_recorded();
        vec![
            new,
            new.intent_observed(),
            recorded,
            recorded.bootstrap(provider_object()),
            recorded.bootstrap(provider_object()).infrastructure(provider_object()),
            recorded.bootstrap(provider_object()).infrastructure(provider_object()).machine(existing_machine()),
            creating,
            creating.bootstrap(provider_object()),
            creating.bootstrap(provider_object().deleting()),
            provisioning.child_uids(false).no_machine(),
            provisioning,
            provisioning.child_uids(false),
        ]
    }

    fn with_machine(&self) -> Vec<World> {
        let running = self.running;
        vec![
            running,
            running.cordon(Cordon::ByOther),
            running.cordon(Cordon::Reverted),
            running.no_node(),
            running.no_pod(),
            running.pod(PodState::Blocked),
            running.child_uids(false),
            running.finalizer(false),
            running.empty_status(),
        ]
    }

    fn shutting_down(&self) -> Vec<World> {
        let Stages { creating, running, draining, deleting, .. } = *self;
        let overdue = Seconds(-10 * 60);
        let started = Seconds::ZERO;
        let leftover = creating.infrastructure(provider_object().adopted());
        vec![
            draining,
            draining.cordon(Cordon::Schedulable).no_pod(),
            draining.cordon(Cordon::ByOther).pod(PodState::Terminating),
            draining.cordon(Cordon::Reverted),
            draining.pod(PodState::Blocked).shutdown_started_at(overdue),
            draining.pod(PodState::Blocked).shutdown_started_at(FUTURE),
            deleting.shutdown_started_at(FUTURE),
            draining.machine(existing_machine().joined().excluded_from_drain()),
            draining.finalizer(false),
            deleting.no_pod(),
            deleting.shutdown_started_at(overdue),
            deleting.cordon(Cordon::Reverted),
            // Another client deleted the Machine.
            running.machine(existing_machine().joined().deleting()),
            leftover,
            leftover.child_uids(true).shutdown_started_at(started),
            draining.no_machine().no_node(),
        ]
    }

    fn failed(&self) -> Vec<World> {
        let Stages { new, creating, provisioning, running, draining, .. } = *self;
        let leftover = creating.child_uids(true).infrastructure(provider_object().adopted());
        vec![
            running.machine(existing_machine().joined().failed()),
            provisioning.machine(existing_machine().failed()),
            draining.machine(existing_machine().joined().failed()),
            new.finalizer(true).backing_off(),
            leftover.shutdown_started_at(Seconds::ZERO).backing_off(),
            new.finalizer(true).backing_off_until(FUTURE),
            running.backing_off(),
        ]
    }

    fn reclaimed(&self) -> Vec<World> {
        let Stages { creating, running, deleting, .. } = *self;
        let in_progress = Reclaim::in_progress(EXISTING_MACHINE);
        let creating = creating.child_uids(true).reclaim(in_progress);
        vec![
            running.reclaim(in_progress),
            deleting.reclaim(in_progress),
            creating.infrastructure(provider_object().adopted()),
            creating,
            running.reclaim(Reclaim::finished(EXISTING_MACHINE)),
            running.reclaim(Reclaim::finished(PREVIOUS_MACHINE)),
        ]
    }

    /// An unmanaged object has the name of a child.
    fn name_taken(&self) -> Vec<World> {
        let Stages { new, creating, running, .. } = *self;
        let other = MachineState::new(OTHER_MACHINE, Owner::Other);
        let other_provider = ProviderState::new(Owner::Other);
        vec![
            new.bootstrap(other_provider),
            new.intent_recorded().bootstrap(other_provider),
            new.intent_recorded().bootstrap(provider_object()).infrastructure(other_provider),
            creating.bootstrap(other_provider),
            creating.infrastructure(other_provider).bootstrap(provider_object()),
            new.machine(other),
            creating.machine(other),
            // What an earlier managed Machine left behind is still managed.
            creating.machine(other).infrastructure(provider_object().adopted()),
            running.machine(existing_machine().joined().taken_over()).no_pod(),
        ]
    }

    /// The workload cluster is being connected, or its Node is unreachable or not identified, for a while or forever.
    fn disconnected(&self) -> Vec<World> {
        let Stages { provisioning, running, draining, deleting, .. } = *self;
        let stages = [
            provisioning,
            running,
            draining,
            deleting,
            running.machine(existing_machine().joined().failed()),
            running.reclaim(Reclaim::in_progress(EXISTING_MACHINE)),
        ];
        let connections = [
            (Connection::Connecting, 2),
            (Connection::Unreachable, 2),
            (Connection::Unreachable, 0),
            (Connection::Unidentified, 2),
            (Connection::Unidentified, 0),
        ];
        let disconnect = |it: World| connections.map(|(connection, rounds)| it.connection(connection, rounds));
        stages.into_iter().flat_map(disconnect).collect()
    }

    /// The agent is not rolled out, or in part, or for an earlier Machine.
    fn agents(&self) -> Vec<World> {
        let Stages { running, draining, deleting, .. } = *self;
        let agents = [
            AgentState::NONE,
            AgentState { config: ConfigState::Absent, ..AgentState::ROLLED_OUT },
            AgentState { labelled: false, config: ConfigState::Unusable, for_machine: true },
            // Left over from an earlier Machine.
            AgentState { for_machine: false, ..AgentState::ROLLED_OUT },
        ];
        let stages = [
            running,
            draining,
            deleting,
            running.reclaim(Reclaim::in_progress(EXISTING_MACHINE)),
            running.not_reclaimable(),
            draining.not_reclaimable(),
        ];
        let roll_out = |it: World| agents.map(|agent| it.agent(agent));
        stages.into_iter().flat_map(roll_out).chain([running.not_reclaimable()]).collect()
    }
}
