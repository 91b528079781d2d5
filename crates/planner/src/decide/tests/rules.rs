//! What holds of every plan, in every world on the way from every start to its end.

use fivespot_api::Phase;

use super::world::{Asked, DRAIN_TIMEOUT, GRACEFUL_SHUTDOWN_TIMEOUT, Schedule, World, every_start};
use crate::observed::{Cluster, Cordon, Exclusions};
use crate::plan::{Action, ForceRemoval, Plan, Step};

fn every_pass(mut check: impl FnMut(&World, &Plan)) {
    for start in every_start() {
        start.settle_and_tell(&mut check);
    }
}

/// All acts of a plan, those that are done side by side too.
fn flat(steps: &[Step]) -> Vec<Step> {
    steps
        .iter()
        .flat_map(|it| match it {
            Step::ForceRemove(removal) => removal.concurrent_lists().flatten().cloned().map(Step::Run).collect(),
            other => vec![other.clone()],
        })
        .collect()
}

/// What takes a machine out, or lets a new one in.
fn begins_something(step: &Step) -> bool {
    match step {
        Step::EvictPods(_) | Step::CreateChildren => true,
        Step::Run(action) => takes(action),
        _ => false,
    }
}

fn takes(action: &Action) -> bool {
    let removes = matches!(action, Action::DeleteMachine { .. } | Action::SetExclusions(_) | Action::Cordon);
    removes || matches!(action, Action::DeletePods(_) | Action::DeleteAllPods)
}

#[test]
fn nothing_is_made_and_removed_in_one_plan() {
    every_pass(|world, plan| {
        let acts = flat(&plan.steps);
        let makes = acts.iter().any(|it| matches!(it, Step::CreateChildren));
        let removes = acts
            .iter()
            .any(|it| matches!(it, Step::Run(Action::DeleteMachine { .. } | Action::DeleteProviderObject { .. })));
        assert!(!(makes && removes), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn a_machine_that_is_not_ours_is_never_touched() {
    every_pass(|world, plan| {
        let acts = flat(&plan.steps);
        let touches = acts
            .iter()
            .any(|it| begins_something(it) || matches!(it, Step::Run(Action::ClearExclusions | Action::Uncordon)));
        assert!(!(world.machine_is_foreign() && touches), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn nothing_begins_while_the_schedule_is_disabled_or_does_not_parse_or_the_cluster_is_paused() {
    every_pass(|world, plan| {
        let begins = flat(&plan.steps).iter().any(begins_something);
        let untold = !world.asked.enabled || world.asked.schedule == Schedule::Invalid;
        let stays =
            !world.is_ejected() && world.alive().is_some() && (untold && !world.asked.deleted || is_paused(world));
        assert!(!(stays && begins), "{world:#?}\n{plan:#?}");
    });
}

fn is_paused(world: &World) -> bool {
    world.cluster == Cluster::Paused
}

#[test]
fn an_eject_waits_for_nothing() {
    every_pass(|world, plan| {
        let Some(machine) = world.machine.managed().filter(|_| world.is_ejected()) else { return };
        let at_once = |wanted: fn(&Action) -> bool| {
            let side_by_side = |it: &Step| match it {
                Step::ForceRemove(removal) => removal.concurrent_lists().flatten().any(wanted),
                _ => false,
            };
            plan.steps.iter().any(side_by_side)
        };
        let marked =
            machine.exclusions == Exclusions::ALL || at_once(|it| *it == Action::SetExclusions(Exclusions::ALL));
        let deleted = machine.deleting || at_once(|it| matches!(it, Action::DeleteMachine { .. }));
        assert!(marked && deleted, "{world:#?}\n{plan:#?}");
        if let Some(cordon) = world.node.filter(|_| world.node_is_seen()) {
            let closed =
                matches!(cordon, Cordon::ByController | Cordon::ByOther) || at_once(|it| *it == Action::Cordon);
            let ended = at_once(|it| matches!(it, Action::DeletePods(_) | Action::DeleteAllPods));
            assert!(closed && (ended || world.pod.is_none()), "{world:#?}\n{plan:#?}");
        }
    });
}

#[test]
fn a_machine_is_not_deleted_before_its_pods_have_left_or_had_their_time() {
    every_pass(|world, plan| {
        let deleted = plan.steps.iter().any(|it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
        let closed = matches!(world.node, Some(Cordon::ByController | Cordon::ByOther));
        let drained = world.node.is_none() || (world.node_is_seen() && closed && world.pod.is_none());
        let time_is_up = world.stored.shutdown_started_at.is_some_and(|it| world.now >= it + DRAIN_TIMEOUT);
        assert!(!deleted || drained || time_is_up, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn cluster_api_is_told_what_to_leave_out_before_a_machine_is_deleted() {
    every_pass(|world, plan| {
        let (after, _) = world.after(plan);
        let Some(leaving) = after.machine.managed().filter(|it| it.deleting) else { return };
        let acts = flat(&plan.steps);
        let deleted = acts.iter().position(|it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
        let marked = acts.iter().position(|it| matches!(it, Step::Run(Action::SetExclusions(_))));
        assert!(deleted.is_none() || (leaving.exclusions.node_drain && marked < deleted), "{world:#?}\n{plan:#?}");
        let overdue = world.stored.shutdown_started_at.is_some_and(|it| world.now >= it + GRACEFUL_SHUTDOWN_TIMEOUT);
        assert!(!overdue || leaving.exclusions.volume_detach, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn a_shutdown_is_stored_before_it_begins() {
    every_pass(|world, plan| {
        let begun = plan.steps.iter().position(begins_something);
        let Some(begun) = begun.filter(|at| plan.steps[*at] != Step::CreateChildren) else { return };
        let before = &plan.steps[..begun];
        let stores = |it: &Step| matches!(it, Step::StoreStatus(standing) if standing.shutdown_started_at.is_some());
        let stored = world.stored.shutdown_started_at.is_some() || before.iter().any(stores);
        let finalizer = world.finalizer || world.asked.deleted || before.contains(&Step::AddFinalizer);
        assert!(stored && finalizer, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn a_reclaim_is_stored_before_the_eject_and_disables_the_schedule_before_it_is_cleared() {
    every_pass(|world, plan| {
        let position = |wanted: fn(&Step) -> bool| plan.steps.iter().position(wanted);
        let stored = position(|it| matches!(it, Step::StoreStatus(_)));
        let ejected = position(|it| matches!(it, Step::ForceRemove(ForceRemoval { .. })));
        if ejected.is_some() && world.is_asked_for() {
            assert!(
                world.stored.reclaim_in_progress() || stored.is_some_and(|it| Some(it) < ejected),
                "{world:#?}\n{plan:#?}"
            );
        }
        let disabled = position(|it| matches!(it, Step::DisableSchedule));
        let cleared = position(|it| *it == Step::Run(Action::ClearReclaimRequest));
        // One that was answered before is only cleared.
        if let Some(cleared) = cleared.filter(|_| world.asked.enabled && !world.asked.deleted && world.is_asked_for()) {
            let done_before = world.stored.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
            assert!(done_before || disabled.is_some_and(|it| it < cleared), "{world:#?}\n{plan:#?}");
        }
        assert!(disabled.is_none() || ejected < disabled, "{world:#?}\n{plan:#?}");
        let unprojected = position(|it| *it == Step::Run(Action::WithdrawAgent));
        if world.is_asked_for() && world.agent_is_there() && world.node_is_seen() {
            let before_it_is_cleared = cleared.is_none_or(|it| unprojected < Some(it));
            assert!(unprojected.is_some() && before_it_is_cleared, "{world:#?}\n{plan:#?}");
        }
        assert!(disabled.is_none() || unprojected.is_none_or(|it| disabled < Some(it)), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn nobody_sleeps_through_the_boundary_of_a_window() {
    for start in every_start() {
        let (boundary, plan) = start.decide_before_a_boundary();
        let wakes = plan.wake_at.is_some_and(|at| at <= boundary);
        assert!(wakes, "the window changes at {boundary}, and it sleeps until {:?}: {start:#?}", plan.wake_at);
    }
}

#[test]
fn a_phase_tells_what_becomes_of_a_machine() {
    every_pass(|world, plan| {
        let Some(machine) = world.machine.managed() else { return };
        let Asked { deleted, enabled, schedule, .. } = world.asked;
        let scheduled = enabled && !deleted && !world.is_ejected() && schedule == Schedule::Open;
        let expected = if world.stored.reclaim_in_progress() {
            Phase::EmergencyRemove
        } else if machine.deleting && !world.is_asked_for() {
            Phase::ShuttingDown
        } else if scheduled && world.machine_has_failed() && !is_paused(world) {
            Phase::Error
        } else {
            return;
        };
        assert_eq!(plan.status.phase, expected, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn a_status_never_claims_what_was_not_seen_or_done() {
    every_pass(|world, plan| {
        let (after, status) = world.after(plan);
        let claims = after.false_claims(&status);
        assert!(claims.is_empty() || after.object_gone, "{claims:?}\n{world:#?}\n{plan:#?}\n{status:#?}");
    });
}

#[test]
fn a_plan_that_is_carried_out_twice_does_nothing_the_second_time() {
    every_pass(|world, plan| {
        let (once, _) = world.after(plan);
        if once.object_gone {
            return;
        }
        let mut twice = once.clone();
        twice.carry_out(&plan.steps);
        assert!(twice.is_like(&once) && twice.made == once.made, "{plan:#?}\n{once:#?}\n{twice:#?}");
    });
}
