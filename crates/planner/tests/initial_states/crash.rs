//! The controller crashes after any request, and a new process continues.

use std::collections::HashSet;

use fivespot_planner::plan::{Action, ForceRemoval, Step};

use crate::simulation::{Decided, MAX_RECONCILES, Next, Reconcile, Request, Requested, Schedule, View, World};
use crate::states::{has_reclaim_request, initial_states, is_equivalent};
use crate::{print, settle};

/// Every list of requests that can have been sent when the process crashes.
fn crash_points(decided: &Decided) -> Vec<Vec<Request>> {
    let mut points = vec![Vec::new()];
    let mut sent = Vec::new();
    for step in &decided.plan.steps {
        let partial = match step {
            Step::ForceRemove(removal) => partial_removals(removal, decided),
            other => prefixes(&decided.step_requests(other)),
        };
        points.extend(partial.into_iter().map(|it| [&sent[..], &it].concat()));
        sent.extend(decided.step_requests(step));
    }
    points
}

/// The lanes of a force removal run concurrently, so each can have got to a different point.
fn partial_removals(removal: &ForceRemoval, decided: &Decided) -> Vec<Vec<Request>> {
    removal.concurrent_lists().fold(vec![Vec::new()], |combinations, lane| {
        let requests: Vec<Request> = lane.iter().flat_map(|action: &Action| decided.action_requests(action)).collect();
        let lane = prefixes(&requests);
        combinations.iter().flat_map(|it| lane.iter().map(|more| [&it[..], more].concat())).collect()
    })
}

fn prefixes(requests: &[Request]) -> Vec<Vec<Request>> {
    (0..=requests.len()).map(|count| requests[..count].to_vec()).collect()
}

/// Every world that a crash in the next reconcile can leave behind. The next process starts immediately, or after the
/// other actors have done something.
fn after_crashes(world: &World) -> Vec<World> {
    let Some(decided) = View::of(world).decide() else { return Vec::new() };
    let mut worlds = Vec::new();
    for requests in crash_points(&decided) {
        let mut crashed = *world;
        let mut reconcile = Reconcile::new(View::of(world));
        crashed.send_all(&mut reconcile, &requests);
        crashed.restart();
        // A request that is not stored yet can disappear with its Node, or appear, before the next observation.
        let stored = crashed.object.is_some_and(|it| it.reclaim_in_progress());
        if !has_reclaim_request(&crashed) || stored {
            let mut later = crashed;
            later.wait_a_round();
            worlds.push(later);
        }
        worlds.push(crashed);
    }
    worlds
}

#[test]
fn crash_at_any_request_does_not_change_the_end() {
    let mut count = 0_u32;
    for start in initial_states() {
        let uninterrupted = settle(&start);
        let mut seen = HashSet::new();
        let mut world = start;
        for reconcile in 1..=MAX_RECONCILES {
            for crashed in after_crashes(&world) {
                if !seen.insert(crashed) {
                    continue;
                }
                let end = settle(&crashed);
                assert!(
                    is_equivalent(&end, &uninterrupted),
                    "from {start:#?}\na crash in reconcile {reconcile} left {crashed:#?}\nwhich ends in {end:#?}\nand not in {uninterrupted:#?}"
                );
                count += 1;
            }
            if world.round(&mut |_, _| {}) != Ok(Next::Reconcile) {
                break;
            }
        }
    }
    print(&format!("{count} crash points"));
    assert!(count >= 250_000, "only {count} crash points");
}

#[test]
fn lanes_crash_independently() {
    let start = World::new(Requested::MACHINE);
    let mut decided = View::of(&start).decide_with(Schedule::Open).unwrap();
    let removal = ForceRemoval {
        machine: vec![Action::Cordon, Action::Uncordon],
        node: Vec::new(),
        pods: vec![Action::DeleteAllPods],
    };
    decided.plan.steps = vec![Step::AddFinalizer, Step::ForceRemove(removal), Step::DisableSchedule];
    let sent: HashSet<String> = crash_points(&decided).iter().map(|it| format!("{it:?}")).collect();
    // Nothing; the finalizer with each of three times two points of the lanes; everything.
    assert_eq!(sent.len(), 1 + 3 * 2 + 1);
}
