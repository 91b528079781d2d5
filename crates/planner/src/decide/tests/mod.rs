//! Decisions, carried out in a world small enough to try all of it.

mod crash;
mod rules;
mod table;
mod world;

use crate::observed::Cluster;
use table::{expected, shortcomings};
use world::{Reach, Schedule, World, every_start};

fn assert_ends_as_expected(start: &World, end: &World) {
    let expected = expected(start);
    let wrong = shortcomings(&expected, start, end);
    assert!(wrong.is_empty(), "{expected:?}, but {wrong:?}\nfrom {start:#?}\nto {end:#?}");
}

#[test]
fn every_start_ends_where_the_design_says() {
    let mut tried = 0;
    for start in every_start() {
        assert_ends_as_expected(&start, &start.clone().settle());
        tried += 1;
    }
    assert!(tried > 9_000, "only {tried} starts");
}

/// What a start ends in when `change` comes only after everything has come to rest, and when it came first.
fn assert_makes_up_for(start: &World, change: impl Fn(&mut World)) {
    let mut at_rest = start.clone().settle();
    if at_rest.object_gone {
        return;
    }
    change(&mut at_rest);
    let end = at_rest.clone().settle();
    assert_ends_as_expected(&at_rest, &end);
    // Whether a request is seen in time can depend on how long the machine is there.
    if !start.asked.reclaim {
        let mut at_once = start.clone();
        change(&mut at_once);
        let at_once = at_once.settle();
        assert!(end.is_like(&at_once), "from {start:#?}\nto {end:#?}\nand not to {at_once:#?}");
    }
}

#[test]
fn a_cluster_that_is_resumed_ends_as_if_it_had_never_been_paused() {
    for start in every_start().filter(|it| it.cluster == Cluster::Paused) {
        assert_makes_up_for(&start, |world| world.cluster = Cluster::Present);
    }
}

#[test]
fn a_spec_that_is_mended_ends_as_if_it_had_always_been_right() {
    for start in every_start().filter(|it| it.asked.schedule == Schedule::Invalid) {
        for schedule in [Schedule::Open, Schedule::Closed] {
            assert_makes_up_for(&start, |world| world.asked.schedule = schedule);
        }
    }
}

#[test]
fn a_cluster_that_answers_again_ends_as_if_it_had_always_answered() {
    for start in every_start().filter(|it| it.reach == Reach::Never) {
        assert_makes_up_for(&start, |world| world.reach = Reach::Answers);
    }
}
