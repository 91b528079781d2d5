//! Runs the shipped `decide` in the simulated cluster from every initial state, with a crash at every request, and checks
//! every plan on the way.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod crash;
mod endings;
mod plan_rules;
#[path = "../simulation/mod.rs"]
mod simulation;
mod states;
mod status_assertions;

use std::io::Write as _;

use fivespot_planner::observed::Cluster;

use endings::{Ending, differences};
use simulation::{Connection, World, unexpected};
use states::initial_states;

/// The test runner captures what the print macros write.
#[allow(clippy::explicit_write, reason = "the print macros are captured")]
fn print(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

/// The world at rest.
fn settle(start: &World) -> World {
    let end = start.settle().unwrap_or_else(|unsettled| panic!("{unsettled:?}\nfrom {start:#?}"));
    assert_eq!(end.violated, None, "from {start:#?}\nto {end:#?}");
    end
}

fn assert_ends_as_expected(start: &World, end: &World) {
    let expected = Ending::of(start);
    let wrong = [differences(expected, start, end), unexpected(end)].concat();
    assert!(wrong.is_empty(), "expected {expected:?}, but {wrong:?}\nfrom {start:#?}\nto {end:#?}");
}

#[test]
fn every_initial_state_ends_as_expected() {
    let mut count = 0;
    for start in initial_states() {
        assert_ends_as_expected(&start, &settle(&start));
        count += 1;
    }
    print(&format!("{count} initial states"));
    assert!(count >= 21_000, "only {count} initial states");
}

/// Checks that a change leads to the same end whether it comes first or after everything has come to rest.
fn assert_end_is_independent_of_time(start: &World, change: impl Fn(&mut World)) {
    let mut changed_late = settle(start);
    if changed_late.object.is_none() {
        return;
    }
    // Whether the agent is rolled out in time for an owner who is still waiting depends on how long the machine exists.
    changed_late.pending.reclaim_request = false;
    change(&mut changed_late);
    changed_late.sync_caches();
    let late_end = settle(&changed_late);
    assert_ends_as_expected(&changed_late, &late_end);
    // Whether a reclaim request is seen can depend on how long the machine exists.
    if !states::has_reclaim_request(start) {
        let mut changed_first = *start;
        change(&mut changed_first);
        changed_first.sync_caches();
        let end = settle(&changed_first);
        assert!(states::is_equivalent(&late_end, &end), "from {start:#?}\nto {late_end:#?}\nand not to {end:#?}");
    }
}

#[test]
fn resumed_cluster_ends_as_if_never_paused() {
    for start in initial_states().filter(|it| it.servers.cluster == Cluster::Paused) {
        assert_end_is_independent_of_time(&start, |world| world.servers.cluster = Cluster::Present);
    }
}

#[test]
fn fixed_spec_ends_as_if_always_valid() {
    for start in initial_states().filter(|it| it.object.is_some_and(|it| !it.requested.valid)) {
        for window_open in [true, false] {
            assert_end_is_independent_of_time(&start, |world| {
                world.window_open = window_open;
                world.object.iter_mut().for_each(|it| it.requested.valid = true);
            });
        }
    }
}

#[test]
fn reconnected_workload_cluster_ends_as_if_always_connected() {
    let is_unreachable = |it: &World| it.servers.connection != Connection::Connected && it.pending.reconnect_in == 0;
    for start in initial_states().filter(is_unreachable) {
        assert_end_is_independent_of_time(&start, |world| world.servers.connection = Connection::Connected);
    }
}
