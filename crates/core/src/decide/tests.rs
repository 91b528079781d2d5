//! Decisions, carried out in a world small enough to try all of it.

mod world;

use fivespot_api::Phase;

use crate::observed::Cluster;
use crate::plan::Action;
use world::{Asked, World, every_start, refs};

/// What DESIGN says the world comes to when nobody asks for anything else.
fn expected(world: &World) -> Phase {
    let Asked { deleted, killed, enabled, window, reclaim } = world.asked;
    let no_new_machine = matches!(world.cluster, Cluster::Missing | Cluster::Deleting);
    // A deletion ends with the object, and a reclaim with a schedule that is disabled.
    if killed {
        Phase::Terminated
    } else if deleted || !enabled || world.reclaim_is_due() {
        Phase::Disabled
    } else if !window {
        Phase::Inactive
    } else if world.machine_is_foreign() || (no_new_machine && !world.machine_is_alive()) {
        Phase::Error
    } else if reclaim {
        // The machine that is made is asked for as soon as it has a Node.
        Phase::Disabled
    } else {
        Phase::Active
    }
}

/// A paused Cluster keeps a machine where it is, unless it is ejected.
fn is_held_up(world: &World) -> bool {
    world.cluster == Cluster::Paused && !world.asked.killed && !world.reclaim_is_due()
}

#[test]
fn every_start_ends_where_the_design_says() {
    let mut tried = 0;
    for start in every_start() {
        let expected = expected(&start);
        let held_up = is_held_up(&start);
        let end = start.clone().settle();
        tried += 1;
        if held_up {
            continue;
        }
        if start.asked.deleted {
            assert!(end.is_deleted(), "{start:#?}\n{end:#?}");
            assert!(end.nothing_is_left(), "{start:#?}\n{end:#?}");
            continue;
        }
        assert_eq!(end.phase, Some(expected), "{start:#?}\n{end:#?}");
        match expected {
            Phase::Inactive | Phase::Terminated => assert!(end.nothing_is_left(), "{start:#?}\n{end:#?}"),
            Phase::Active => assert!(end.has_one_of_each(), "{start:#?}\n{end:#?}"),
            Phase::Disabled | Phase::Error => {}
            Phase::Pending | Phase::ShuttingDown | Phase::EmergencyRemove => panic!("{expected} is no end"),
        }
        if start.reclaim_is_due() {
            assert!(!end.asked.enabled && end.nothing_is_left(), "{start:#?}\n{end:#?}");
        }
    }
    assert!(tried > 1_000, "only {tried} starts");
}

#[test]
fn a_crash_after_any_act_changes_nothing_about_the_end() {
    for start in every_start().filter(|it| !is_held_up(it)) {
        let uninterrupted = start.clone().settle();
        for crash_after in 0..6 {
            let mut world = start.clone();
            world.pass_until_crash(crash_after);
            let end = world.settle();
            // The last status of an object that is gone is nobody's.
            assert!(
                end.is_deleted() || end.phase == uninterrupted.phase,
                "crash after {crash_after}: {start:#?}\n{end:#?}"
            );
            assert_eq!(end.asked, uninterrupted.asked, "crash after {crash_after}: {start:#?}\n{end:#?}");
            assert_eq!(
                (end.nothing_is_left(), end.has_one_of_each(), end.is_deleted()),
                (uninterrupted.nothing_is_left(), uninterrupted.has_one_of_each(), uninterrupted.is_deleted()),
                "crash after {crash_after}: {start:#?}\n{end:#?}"
            );
        }
    }
}

#[test]
fn nothing_foreign_is_ever_touched_and_nothing_is_made_and_removed_in_one_plan() {
    fn flat(actions: &[Action]) -> Vec<&Action> {
        actions
            .iter()
            .flat_map(|it| match it {
                Action::Together(lists) => lists.iter().flat_map(|list| flat(list)).collect(),
                other => vec![other],
            })
            .collect()
    }
    for start in every_start() {
        let plan = start.decide();
        let acts = flat(&plan.actions);
        let makes = acts.iter().any(|it| matches!(it, Action::CreateChildren));
        let removes = acts.iter().any(|it| matches!(it, Action::DeleteMachine { .. } | Action::DeleteProvider { .. }));
        assert!(!(makes && removes), "{start:#?}\n{plan:#?}");
        if start.machine_is_foreign() {
            let touches = |it: &&Action| {
                let machine = matches!(it, Action::DeleteMachine { .. } | Action::Mark(_) | Action::Unmark);
                // No start has children of its own beside somebody else's Machine.
                machine || matches!(it, Action::DeleteProvider { .. })
            };
            assert!(!acts.iter().any(touches), "{start:#?}\n{plan:#?}");
        }
        if !start.asked.enabled && !start.asked.deleted && !start.asked.killed && !start.reclaim_is_due() {
            let begins = |it: &&Action| {
                matches!(it, Action::DeleteMachine { .. } | Action::Cordon | Action::Evict(_) | Action::CreateChildren)
            };
            assert!(!acts.iter().any(begins), "{start:#?}\n{plan:#?}");
        }
    }
}

#[test]
fn what_an_act_relies_on_is_stored_before_it() {
    for start in every_start() {
        let plan = start.decide();
        let position = |wanted: fn(&Action) -> bool| plan.actions.iter().position(wanted);
        let stored = position(|it| matches!(it, Action::Store(_)));
        if let Some(made) = position(|it| matches!(it, Action::CreateChildren)) {
            assert!(start.finalizer || position(|it| matches!(it, Action::AddFinalizer)) < Some(made));
            assert!(start.stored.refs == Some(refs()) || stored < Some(made) && stored.is_some(), "{plan:#?}");
        }
        if let Some(ejected) = position(|it| matches!(it, Action::Together(_)))
            && start.reclaim_is_due()
            && !start.asked.deleted
        {
            assert!(start.stored.reclaiming || stored.is_some_and(|it| it < ejected), "{plan:#?}");
            let (disabled, cleared) = (
                position(|it| matches!(it, Action::DisableSchedule)),
                position(|it| matches!(it, Action::ClearRequest)),
            );
            if let (Some(disabled), Some(cleared)) = (disabled, cleared) {
                assert!(ejected < disabled && disabled < cleared, "{plan:#?}");
            }
        }
    }
}

#[test]
fn a_status_never_claims_what_was_not_seen_or_done() {
    for start in every_start() {
        let plan = start.decide();
        let (after, status) = start.after(&plan);
        let claims = after.false_claims(&status);
        assert!(claims.is_empty() || after.is_deleted(), "{claims:?}\n{start:#?}\n{plan:#?}\n{status:#?}");
    }
}

#[test]
fn a_plan_that_is_carried_out_twice_does_nothing_the_second_time() {
    for start in every_start() {
        let plan = start.decide();
        let (once, _) = start.after(&plan);
        if once.is_deleted() {
            continue;
        }
        let mut twice = once.clone();
        twice.carry_out(&plan);
        assert!(twice.is_like(&once), "{plan:#?}\n{once:#?}\n{twice:#?}");
    }
}
