//! What holds of every plan, in every world on the way from every initial state to its end.

use fivespot_api::Phase;
use fivespot_planner::observed::{Cluster, Cordon, Exclusions};
use fivespot_planner::plan::{Action, Plan, Step};

use crate::simulation::{
    Connection, DRAIN_TIMEOUT, Decided, Object, Reconcile, Response, SHUTDOWN_TIMEOUT, Schedule, View, World,
};
use crate::states::{initial_states, is_equivalent};

pub(crate) fn every_plan(mut check: impl FnMut(&World, &Decided)) {
    for start in initial_states() {
        let end = start.settle_checking(&mut check);
        assert!(end.as_ref().is_ok_and(|it| it.violated.is_none()), "{end:?}\nfrom {start:#?}");
    }
}

/// The world after all steps of a plan, or after the first that failed, and the last response.
pub(crate) fn after(world: &World, decided: &Decided) -> (World, Response) {
    let mut after = *world;
    let mut reconcile = Reconcile::new(View::of(world));
    let response = after.send_all(&mut reconcile, &decided.plan_requests());
    (after, response)
}

/// All steps of a plan, with those of a force removal one after the other.
fn flattened(plan: &Plan) -> Vec<Step> {
    let flatten = |step: &Step| match step {
        Step::ForceRemove(removal) => removal.concurrent_lists().flatten().cloned().map(Step::Run).collect(),
        other => vec![other.clone()],
    };
    plan.steps.iter().flat_map(flatten).collect()
}

/// Whether a step starts to remove or to create a machine.
fn starts_something(step: &Step) -> bool {
    match step {
        Step::EvictPods(_) | Step::CreateChildren => true,
        Step::Run(action) => matches!(
            action,
            Action::DeleteMachine { .. }
                | Action::SetExclusions(_)
                | Action::Cordon
                | Action::DeletePods(_)
                | Action::DeleteAllPods
        ),
        _ => false,
    }
}

fn object(world: &World) -> Object {
    world.object.unwrap()
}

/// Whether a reclaim is in progress or was completed.
fn has_reclaim(world: &World) -> bool {
    object(world).reclaim.is_some() || world.servers.node.is_some_and(|node| node.reclaim_requested)
}

fn is_paused(world: &World) -> bool {
    world.servers.cluster == Cluster::Paused
}

/// Whether a reclaim is in progress, or a request for one can be observed.
fn is_reclaimed(world: &World) -> bool {
    let object = object(world);
    let requested = world.servers.reachable_node().filter(|it| it.reclaim_requested && it.agent.for_machine);
    let counts =
        |machine: u8| object.requested.reclaimable && object.reclaim.is_none_or(|reclaim| reclaim.machine != machine);
    object.reclaim_in_progress() || requested.is_some_and(|it| counts(it.machine))
}

fn is_forced(world: &World) -> bool {
    object(world).requested.kill_switch || is_reclaimed(world)
}

#[test]
fn no_plan_both_creates_and_removes() {
    every_plan(|world, Decided { plan, .. }| {
        let steps = flattened(plan);
        let creates = steps.contains(&Step::CreateChildren);
        let removes =
            |it: &Step| matches!(it, Step::Run(Action::DeleteMachine { .. } | Action::DeleteProviderObject { .. }));
        assert!(!(creates && steps.iter().any(removes)), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn unmanaged_machine_is_not_touched() {
    every_plan(|world, Decided { plan, .. }| {
        let unmanaged = world.servers.machine.is_some_and(|it| !it.is_managed());
        let touches =
            |it: &Step| starts_something(it) || matches!(it, Step::Run(Action::ClearExclusions | Action::Uncordon));
        assert!(!(unmanaged && flattened(plan).iter().any(touches)), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn nothing_starts_while_disabled_invalid_or_paused() {
    every_plan(|world, Decided { plan, .. }| {
        let requested = object(world).requested;
        let unscheduled = !requested.enabled || !requested.valid;
        let stays = !is_forced(world)
            && world.servers.live_machine().is_some()
            && (unscheduled && !requested.deleted || is_paused(world));
        assert!(!(stays && flattened(plan).iter().any(starts_something)), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn agent_is_rolled_out_only_if_configured() {
    every_plan(|world, Decided { plan, .. }| {
        let rolls_out = plan.steps.iter().any(|it| matches!(it, Step::RollOutAgent { .. }));
        assert!(!rolls_out || object(world).requested.reclaimable, "{world:#?}\n{plan:#?}");
    });
}

/// While Cluster API drains the Node of a Machine that is being deleted, the owner can reclaim it.
#[test]
fn agent_stays_until_the_node_is_drained() {
    let mut kept = 0;
    every_plan(|world, Decided { plan, .. }| {
        let Some(machine) = world.servers.managed_machine() else { return };
        let steps = flattened(plan);
        let excludes = |it: &Step| matches!(it, Step::Run(Action::SetExclusions(it)) if it.node_drain);
        let may_run_pods = !machine.exclusions.node_drain && !steps.iter().any(excludes);
        if may_run_pods && object(world).requested.reclaimable && !has_reclaim(world) {
            let withdraws = steps.contains(&Step::Run(Action::WithdrawAgent));
            assert!(!withdraws, "{world:#?}\n{plan:#?}");
            kept += usize::from(machine.deleting);
        }
    });
    assert!(kept > 0, "no state in which Cluster API drains");
}

#[test]
fn force_removal_waits_for_nothing() {
    every_plan(|world, Decided { plan, .. }| {
        let Some(machine) = world.servers.managed_machine().filter(|_| is_forced(world)) else { return };
        let runs = |wanted: fn(&Action) -> bool| {
            let in_removal = |it: &Step| match it {
                Step::ForceRemove(removal) => removal.concurrent_lists().flatten().any(wanted),
                _ => false,
            };
            plan.steps.iter().any(in_removal)
        };
        let excluded =
            machine.exclusions == Exclusions::ALL || runs(|it| *it == Action::SetExclusions(Exclusions::ALL));
        let deleted = machine.deleting || runs(|it| matches!(it, Action::DeleteMachine { .. }));
        assert!(excluded && deleted, "{world:#?}\n{plan:#?}");
        if let Some(node) = world.servers.reachable_node() {
            let cordoned = !node.cordon.accepts_pods() || runs(|it| *it == Action::Cordon);
            let pods_deleted = runs(|it| matches!(it, Action::DeletePods(_) | Action::DeleteAllPods));
            assert!(cordoned && (pods_deleted || world.servers.pod.is_none()), "{world:#?}\n{plan:#?}");
        }
    });
}

#[test]
fn machine_is_deleted_only_if_drained_or_timed_out() {
    every_plan(|world, Decided { plan, .. }| {
        let deletes = plan.steps.iter().any(|it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
        let cordoned = world
            .servers
            .reachable_node()
            .is_some_and(|it| matches!(it.cordon, Cordon::ByController | Cordon::ByOther));
        let drained = world.servers.node.is_none() || (cordoned && world.servers.pod.is_none());
        let timed_out = object(world).shutdown_started_at.is_some_and(|at| world.now >= at + DRAIN_TIMEOUT);
        assert!(!deletes || drained || timed_out, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn exclusions_are_set_before_the_machine_is_deleted() {
    every_plan(|world, decided| {
        let plan = &decided.plan;
        let (after, _) = after(world, decided);
        let Some(machine) = after.servers.managed_machine().filter(|it| it.deleting) else { return };
        let steps = flattened(plan);
        let deleted = steps.iter().position(|it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
        let excluded = steps.iter().position(|it| matches!(it, Step::Run(Action::SetExclusions(_))));
        // Cluster API may be able to drain a Node that the controller has no access to.
        let inaccessible = machine.joined && world.servers.connection != Connection::Connected && !is_forced(world);
        let before = (machine.exclusions.node_drain || inaccessible) && excluded <= deleted;
        assert!(deleted.is_none() || before, "{world:#?}\n{plan:#?}");
        let overdue = object(world).shutdown_started_at.is_some_and(|at| world.now >= at + SHUTDOWN_TIMEOUT);
        assert!(!overdue || machine.exclusions.volume_detach, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn shutdown_is_stored_before_it_starts() {
    every_plan(|world, Decided { plan, .. }| {
        let Some(start) = plan.steps.iter().position(starts_something) else { return };
        if plan.steps[start] == Step::CreateChildren {
            return;
        }
        let before = &plan.steps[..start];
        let stores = |it: &Step| matches!(it, Step::StoreStatus(status) if status.shutdown_started_at.is_some());
        let object = object(world);
        let stored = object.shutdown_started_at.is_some() || before.iter().any(stores);
        let protected = object.finalizer || object.requested.deleted || before.contains(&Step::AddFinalizer);
        assert!(stored && protected, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn reclaim_is_stored_and_disables_the_schedule_in_order() {
    every_plan(|world, Decided { plan, .. }| {
        let object = object(world);
        let reclaimed = is_reclaimed(world);
        let position = |wanted: fn(&Step) -> bool| plan.steps.iter().position(wanted);
        let stored = position(|it| matches!(it, Step::StoreStatus(_)));
        let removed = position(|it| matches!(it, Step::ForceRemove(_)));
        if removed.is_some() && reclaimed {
            let stored_before = stored.is_some_and(|it| Some(it) < removed);
            assert!(object.reclaim_in_progress() || stored_before, "{world:#?}\n{plan:#?}");
        }
        let disabled = position(|it| matches!(it, Step::DisableSchedule));
        let cleared = position(|it| *it == Step::Run(Action::ClearReclaimRequest));
        // A request for a Machine that was reclaimed before is only cleared.
        let disables = object.requested.enabled && !object.requested.deleted && reclaimed;
        if let Some(cleared) = cleared.filter(|_| disables) {
            let disabled_before = object.reclaim.is_some_and(|it| it.schedule_disabled);
            assert!(disabled_before || disabled.is_some_and(|it| it < cleared), "{world:#?}\n{plan:#?}");
        }
        assert!(disabled.is_none() || removed < disabled, "{world:#?}\n{plan:#?}");
        let withdrawn = position(|it| *it == Step::Run(Action::WithdrawAgent));
        if reclaimed && world.servers.reachable_node().is_some_and(|it| !it.agent.is_withdrawn()) {
            let before_clear = cleared.is_none_or(|it| withdrawn < Some(it));
            assert!(withdrawn.is_some() && before_clear, "{world:#?}\n{plan:#?}");
        }
        assert!(disabled.is_none() || withdrawn.is_none_or(|it| disabled < Some(it)), "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn every_plan_wakes_at_the_next_boundary() {
    for start in initial_states() {
        let decided = View::of(&start).decide_with(Schedule::Daily).unwrap();
        let boundary = decided.input().next_boundary().unwrap();
        let wake_at = decided.plan.wake_at;
        assert!(wake_at.is_some_and(|at| at <= boundary), "boundary {boundary}, woken at {wake_at:?}: {start:#?}");
    }
}

#[test]
fn phase_follows_from_the_machine() {
    every_plan(|world, Decided { plan, .. }| {
        let Some(machine) = world.servers.managed_machine() else { return };
        let object = object(world);
        let requested = object.requested;
        let scheduled =
            requested.enabled && !requested.deleted && !is_forced(world) && requested.valid && world.window_open;
        let expected = if object.reclaim_in_progress() {
            Phase::EmergencyRemove
        } else if machine.deleting && !is_reclaimed(world) {
            Phase::ShuttingDown
        } else if scheduled && machine.failed && !is_paused(world) {
            Phase::Error
        } else {
            return;
        };
        assert_eq!(plan.status.phase, expected, "{world:#?}\n{plan:#?}");
    });
}

#[test]
fn executing_a_plan_twice_changes_nothing() {
    every_plan(|world, decided| {
        let (once, _) = after(world, decided);
        if once.object.is_none() {
            return;
        }
        let mut twice = once;
        let mut reconcile = Reconcile::new(View::of(world));
        reconcile.known = once.object;
        twice.send_all(&mut reconcile, &decided.plan_requests());
        let unchanged = is_equivalent(&twice, &once) && twice.created == once.created;
        assert!(unchanged && twice.violated.is_none(), "{:#?}\n{once:#?}\n{twice:#?}", decided.plan);
    });
}
