//! The state in which a world comes to rest, according to the spec.

use fivespot_api::Phase;
use fivespot_planner::observed::{Cluster, Cordon, Exclusions};

use super::state::{AgentState, Connection, MachineState, Object, ProviderState, Servers, World};

/// A property that does not hold if the flag is set.
type Finding = (bool, &'static str);

/// What is not as the spec asks for in a world at rest.
pub(crate) fn unexpected(world: &World) -> Vec<&'static str> {
    let servers = &world.servers;
    let Some(object) = world.object else {
        return failed(vec![(!servers.nothing_managed(), "a child is left behind")]);
    };
    let requested = object.requested;
    let findings = if let Some(machine) = waiting_machine(&object, world) {
        waiting(&object, machine)
    } else if requested.deleted {
        vec![(true, "a deleted object exists")]
    } else if requested.kill_switch {
        removed(&object, servers, Phase::Terminated)
    } else if !requested.enabled {
        kept(&object, servers)
    } else if !requested.valid {
        left_alone(&object, servers)
    } else if world.window_open {
        running(&object, servers)
    } else {
        removed(&object, servers, Phase::Inactive)
    };
    failed([findings, vec![unprotected(&object, servers)], agent(&object, servers)].concat())
}

fn failed(findings: Vec<Finding>) -> Vec<&'static str> {
    findings.into_iter().filter_map(|(failed, what)| failed.then_some(what)).collect()
}

fn phase(object: &Object, expected: Phase) -> Finding {
    (object.phase != Some(expected), "wrong phase")
}

fn remembered_shutdown(object: &Object) -> Finding {
    (object.shutdown_started_at.is_some(), "a shutdown that is over is still stored")
}

/// The Machine of a paused Cluster that has to leave: Cluster API does not delete it until the Cluster is resumed.
fn waiting_machine(object: &Object, world: &World) -> Option<MachineState> {
    let machine = world.servers.managed_machine().filter(|_| world.servers.cluster == Cluster::Paused)?;
    let requested = object.requested;
    let scheduled = requested.enabled && requested.valid;
    let leaves = requested.deleted
        || is_forced(object)
        || machine.deleting
        || (scheduled && (!world.window_open || machine.failed));
    leaves.then_some(machine)
}

fn is_forced(object: &Object) -> bool {
    object.requested.kill_switch || object.reclaim_in_progress()
}

fn waiting(object: &Object, machine: MachineState) -> Vec<Finding> {
    let expected = if object.reclaim_in_progress() { Phase::EmergencyRemove } else { Phase::ShuttingDown };
    vec![
        phase(object, expected),
        (is_forced(object) && !machine.deleting, "the delete was not issued"),
        (is_forced(object) && machine.exclusions != Exclusions::ALL, "Cluster API is not asked to skip the drain"),
    ]
}

fn removed(object: &Object, servers: &Servers, expected: Phase) -> Vec<Finding> {
    vec![
        phase(object, expected),
        (!servers.nothing_managed(), "a child is left"),
        (object.has_refs(), "refs of deleted children are still stored"),
        remembered_shutdown(object),
    ]
}

/// The schedule is disabled.
fn kept(object: &Object, servers: &Servers) -> Vec<Finding> {
    let machine = servers.managed_machine();
    vec![
        phase(object, Phase::Disabled),
        remembered_shutdown(object),
        (machine.is_some_and(|it| it.deleting), "a Machine is being deleted"),
        (machine.is_some_and(|it| is_shutdown_visible(it, servers)), "something of a cancelled shutdown is left"),
    ]
}

/// The spec is invalid.
fn left_alone(object: &Object, servers: &Servers) -> Vec<Finding> {
    vec![
        phase(object, Phase::Error),
        remembered_shutdown(object),
        (servers.managed_machine().is_some_and(|it| it.deleting), "a Machine is being deleted"),
    ]
}

/// The window is open: a machine runs, or the status reports what prevents it.
fn running(object: &Object, servers: &Servers) -> Vec<Finding> {
    let Some(machine) = servers.managed_machine() else {
        return vec![match prevented(object, servers) {
            Some(expected) => phase(object, expected),
            None => (true, "no Machine exists"),
        }];
    };
    let adopted = machine.joined.then_some(machine.uid);
    let own = |it: ProviderState| servers.is_managed(it) && !it.deleting && it.adopted_by == adopted;
    let complete = servers.providers().into_iter().all(|it| it.is_some_and(own));
    vec![
        phase(object, Phase::Active),
        remembered_shutdown(object),
        (!complete, "a provider object is missing"),
        (!object.child_uids, "uids of provider objects are not stored"),
        (machine.deleting || machine.failed, "the Machine is of no use"),
        (is_shutdown_visible(machine, servers), "something of a cancelled shutdown is left"),
    ]
}

/// The phase that reports why no Machine can be created. Provider objects are read only once their refs are stored.
fn prevented(object: &Object, servers: &Servers) -> Option<Phase> {
    let unmanaged = servers.providers().into_iter().flatten().any(|it| !servers.is_managed(it));
    let name_taken = servers.machine.is_some() || (object.has_refs() && unmanaged);
    match servers.cluster {
        _ if name_taken => Some(Phase::Error),
        Cluster::Missing | Cluster::Deleting => Some(Phase::Error),
        Cluster::Paused => Some(Phase::Pending),
        Cluster::Present => None,
    }
}

/// Whether a cancelled shutdown has left something on the machine. The controller cannot uncordon an unreachable Node.
pub(crate) fn is_shutdown_visible(machine: MachineState, servers: &Servers) -> bool {
    let cordoned = servers.node.is_some_and(|it| matches!(it.cordon, Cordon::ByController | Cordon::Reverted));
    machine.exclusions != Exclusions::default() || (cordoned && servers.connection == Connection::Connected)
}

/// Without the finalizer, a deletion would not wait for the machine.
fn unprotected(object: &Object, servers: &Servers) -> Finding {
    let stays = servers.live_machine().is_some();
    (stays && !object.finalizer && !object.requested.deleted, "the finalizer is missing")
}

/// The agent is rolled out on the Node of every machine that stays and that its owner may reclaim.
fn agent(object: &Object, servers: &Servers) -> Vec<Finding> {
    let (Some(machine), Some(node)) = (servers.managed_machine(), servers.reachable_node()) else {
        return Vec::new();
    };
    let was_reclaimed = object.reclaim.is_some_and(|it| it.machine == machine.uid);
    let stays = !machine.deleting && !was_reclaimed;
    let expected = stays && object.requested.reclaimable;
    let is_kept = stays && !object.requested.valid;
    vec![
        (expected && node.agent != AgentState::ROLLED_OUT, "the agent is not rolled out"),
        // An invalid spec does not withdraw it.
        (!expected && !node.agent.is_withdrawn() && !is_kept, "the agent was not withdrawn"),
        (node.reclaim_requested, "a reclaim request is left on the Node"),
    ]
}
