//! What DESIGN says a world comes to, told without a look at how it is decided.

use fivespot_api::Phase;

use super::world::{Asked, Reach, Schedule, World};
use crate::observed::{Cluster, Cordon};

/// How a world ends when nobody asks for anything else.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The object is gone, and nothing is left.
    Gone,
    /// Nothing is left of the machine.
    Removed(Phase),
    /// There is one machine, and it is in the cluster.
    Running,
    /// There is no machine of ours, and none has been made.
    Unmade(Phase),
    /// The machine lives on, and nobody has laid hands on it.
    Untouched(Phase),
    /// The machine lives on, and nothing is left of a shutdown that had begun.
    TakenBack(Phase),
}

pub(super) fn expected(world: &World) -> End {
    let Asked { deleted, killed, enabled, schedule, .. } = world.asked;
    let given_back = is_given_back(world);
    let alive = world.alive().is_some();
    // A paused Cluster keeps a machine where it is, unless it is ejected.
    let held = world.cluster == Cluster::Paused && alive && !killed && !given_back;
    match schedule {
        _ if deleted && held => End::Untouched(Phase::ShuttingDown),
        _ if deleted => End::Gone,
        _ if killed => End::Removed(Phase::Terminated),
        _ if given_back => End::Removed(Phase::Disabled),
        _ if !enabled && alive => End::TakenBack(Phase::Disabled),
        _ if !enabled => End::Unmade(Phase::Disabled),
        Schedule::Invalid if alive => End::Untouched(Phase::Error),
        Schedule::Invalid => End::Unmade(Phase::Error),
        Schedule::Closed if held => End::Untouched(Phase::ShuttingDown),
        Schedule::Closed => End::Removed(Phase::Inactive),
        Schedule::Open if world.machine_is_foreign() => End::Unmade(Phase::Error),
        Schedule::Open if is_fit(world) => End::Running,
        Schedule::Open if held => End::Untouched(Phase::ShuttingDown),
        Schedule::Open => match world.cluster {
            Cluster::Present => End::Running,
            Cluster::Missing | Cluster::Deleting => End::Unmade(Phase::Error),
            Cluster::Paused => End::Unmade(Phase::Pending),
        },
    }
}

fn is_fit(world: &World) -> bool {
    world.alive().is_some() && !world.machine_has_failed()
}

/// Whether the owner gets the machine back: a request that is stored is finished, and any other counts once it is seen on
/// the Node of a Machine that was not given back before.
fn is_given_back(world: &World) -> bool {
    let Asked { deleted, killed, enabled, schedule, reclaim, orders } = world.asked;
    if world.stored.reclaim_in_progress() {
        return true;
    }
    if !reclaim || !orders || world.reach == Reach::Never || world.was_reclaimed() {
        return false;
    }
    let paused = world.cluster == Cluster::Paused;
    let scheduled = enabled && !deleted && !killed;
    let goes_at_once = killed || (!paused && (deleted || (enabled && schedule == Schedule::Closed)));
    match world.machine.managed() {
        // A request on a Node that cannot be reached yet is seen if the machine is there for so long.
        Some(_) if world.node.is_some() => world.reach == Reach::Answers || (world.alive().is_some() && !killed),
        // The owner asks as soon as there is a Node.
        Some(joining) if joining.node.is_none() && is_fit(world) => !goes_at_once,
        Some(_) if is_fit(world) => false,
        Some(_) | None => {
            let made = scheduled && schedule == Schedule::Open && world.cluster == Cluster::Present;
            made && !world.machine_is_foreign()
        }
    }
}

/// What is not as expected at an end.
pub(super) fn shortcomings(expected: &End, start: &World, end: &World) -> Vec<&'static str> {
    let phase = |phase: Phase| (end.phase != Some(phase), "another phase");
    let wrong = match expected {
        End::Gone => vec![(!end.object_gone, "the object is there"), (!end.nothing_is_left(), "something is left")],
        End::Removed(it) => {
            let removed = vec![phase(*it), (!end.nothing_is_left(), "something is left")];
            if is_given_back(start) { [removed, given_back(start, end)].concat() } else { removed }
        }
        End::Running => [running(start, end), vec![phase(Phase::Active)]].concat(),
        End::Unmade(it) => [unmade(start, end), vec![phase(*it)]].concat(),
        End::Untouched(it) => [touched(start, end), vec![phase(*it)]].concat(),
        End::TakenBack(it) => vec![
            phase(*it),
            (!is_the_same_machine(start, end), "another machine"),
            (!end.is_taken_back(), "something is left of the shutdown"),
            (!end.finalizer, "a deletion would not wait for it"),
        ],
    };
    wrong.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).chain(end.agent_is_wrong()).collect()
}

type Findings = Vec<(bool, &'static str)>;

fn given_back(start: &World, end: &World) -> Findings {
    let count = |world: &World| world.stored.reclaim.as_ref().map_or(0, |it| it.count);
    let begun = i64::from(!start.stored.reclaim_in_progress());
    let told = end.stored.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
    vec![
        (end.asked.enabled, "it comes back by itself"),
        (!told, "nobody is told that it was given back"),
        (count(end) != count(start) + begun, "it was not given back once"),
    ]
}

fn running(start: &World, end: &World) -> Findings {
    let stays = is_fit(start);
    vec![
        (!is_fit(end), "no machine that is of use"),
        (stays && !is_the_same_machine(start, end), "a machine that was of use was replaced"),
        (!stays && end.made != start.made + 1, "not one machine was made"),
        (end.bootstrap.is_none() || end.infrastructure.is_none(), "a part is missing"),
        (!end.stored.has_child_uids, "the uids of its parts are not known"),
        (!end.finalizer, "a deletion would not wait for it"),
        (!end.is_taken_back(), "something is left of a shutdown"),
    ]
}

fn unmade(start: &World, end: &World) -> Findings {
    let nobody_can_tell = !start.asked.enabled || start.asked.schedule == Schedule::Invalid;
    let left = start.is_leaving();
    let stays = end.machine_is_foreign() || (nobody_can_tell && !left);
    let forgotten = end.stored.shutdown_started_at.is_none();
    vec![
        (end.machine.managed().is_some() || end.made > start.made, "there is a machine"),
        (stays && parts(end) != parts(start), "parts that nobody wants out were touched"),
        (left && parts(end) != [None; 2], "something is left of a machine that was on its way out"),
        (!forgotten, "a shutdown that is over is remembered"),
    ]
}

fn touched(start: &World, end: &World) -> Findings {
    let exclusions = |world: &World| world.alive().map(|it| it.exclusions);
    // What joins meanwhile is open.
    let cordon = |world: &World| world.node.unwrap_or(Cordon::Schedulable);
    vec![
        (!is_the_same_machine(start, end), "another machine"),
        (exclusions(start) != exclusions(end), "its exclusions"),
        (cordon(start) != cordon(end), "its cordon"),
        (start.pod != end.pod && !start.pod_leaves(), "its pod"),
        (parts(start) != parts(end), "its parts"),
        (end.stored.shutdown_started_at.is_some(), "its time to leave runs, and nobody asks it to"),
        (!end.finalizer && !end.asked.deleted, "a deletion would not wait for it"),
    ]
}

fn is_the_same_machine(start: &World, end: &World) -> bool {
    let uid = |world: &World| world.alive().map(|it| it.uid.clone());
    uid(start).is_some() && uid(start) == uid(end) && start.made == end.made
}

/// The uids of bootstrap and infrastructure object, as far as nobody has deleted them.
fn parts(world: &World) -> [Option<&str>; 2] {
    [&world.bootstrap, &world.infrastructure].map(|it| it.as_ref().filter(|it| !it.deleting).map(|it| it.uid.as_str()))
}
