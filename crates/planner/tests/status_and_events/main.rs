//! What the status says and which events are published, in situations that single decisions do not show.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod fixtures;
mod messages;
mod stored_state;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_planner::events::Reason;
use fivespot_planner::observed::{Child, Cluster, Machine};
use fivespot_planner::status::{Outcome, Purpose};
use serde_json::json;

use fixtures::{Desk, deleting_machine};

fn condition(status: &ScheduledMachineStatus, name: &str) -> (String, String) {
    let condition = status.conditions.iter().find(|it| it.type_ == name).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

/// A machine that is being reclaimed.
fn reclaimed_desk(schedule_disabled: bool) -> Desk {
    let reclaim = json!({
        "machineUID": "m1",
        "reason": "process-match: idea",
        "scheduleDisabled": schedule_disabled,
        "inProgress": true,
        "count": 1,
    });
    let mut desk =
        Desk::with_status(&json!({ "phase": "EmergencyRemove", "observedGeneration": 1, "reclaim": reclaim }));
    desk.observed.machine = Child::Managed(deleting_machine());
    desk
}

#[test]
fn kill_switch_set_during_reclaim_takes_effect_after_it() {
    for set_after_reclaim in [false, true] {
        let mut desk = reclaimed_desk(true);
        desk.object.spec.schedule.enabled = false;
        if !set_after_reclaim {
            desk.edit(|it| it.spec.kill_switch = true);
        }
        let during = desk.reconcile();
        assert_eq!(desk.status().phase, Some(Phase::EmergencyRemove));
        desk.observed.machine = Child::Absent;
        let at_end = desk.reconcile();
        assert_eq!(desk.status().phase, Some(Phase::Disabled));
        // No watch event follows, so a kill switch that is already set requires an immediate reconcile.
        let boundary = "2026-11-16T17:00:00Z".parse().unwrap();
        assert_eq!(at_end.plan.wake_at, Some(if set_after_reclaim { boundary } else { desk.now }));
        if set_after_reclaim {
            desk.edit(|it| it.spec.kill_switch = true);
        }
        let afterwards = desk.reconcile();
        let status = desk.status();
        assert_eq!(status.phase, Some(Phase::Terminated));
        assert_eq!(condition(&status, "Ready"), ("False".to_owned(), "KillSwitchActive".to_owned()));
        assert_eq!(afterwards.reasons(), [Reason::KillSwitchActivated]);
        let later = desk.reconcile();
        let others = [during.reasons(), at_end.reasons(), later.reasons()].concat();
        assert!(!others.contains(&Reason::KillSwitchActivated), "{others:?}");
    }
}

#[test]
fn failed_read_does_not_change_references_valid() {
    type Change = fn(&mut Desk);
    let cases: [(Change, &str, &str); 6] = [
        (|it| it.observed.cluster = Cluster::Missing, "False", "ClusterNotFound"),
        (|it| it.observed.cluster = Cluster::Paused, "False", "ClusterPaused"),
        (|it| it.observed.infrastructure = Child::Unmanaged("other".to_owned()), "False", "NameConflict"),
        (
            |it| {
                let fingerprint = Some("another spec".to_owned());
                it.observed.machine = Child::Managed(Machine { fingerprint, ..deleting_machine() });
            },
            "True",
            "ValidNextWindow",
        ),
        (|it| it.object.spec.infrastructure_spec.api_version = "apps/v1".to_owned(), "False", "GroupNotAllowed"),
        (|_| {}, "True", "Valid"),
    ];
    for (change, status, reason) in cases {
        let mut desk = Desk::new();
        change(&mut desk);
        desk.fail(Purpose::Maintain, "no answer within 30 s");
        let computed = desk.compute(&desk.undecided(), &desk.outcome);
        assert_eq!(condition(&computed, "ReferencesValid"), (status.to_owned(), reason.to_owned()));
        assert_eq!(computed.message.as_deref(), Some("no answer within 30 s"));
    }
}

#[test]
fn disabled_schedule_is_reported_despite_later_failure() {
    // The schedule is disabled by the reconcile that fails, or by an earlier one whose status was not stored.
    for by_this_reconcile in [true, false] {
        let mut desk = reclaimed_desk(false);
        desk.object.spec.schedule.enabled = by_this_reconcile;
        let desired = desk.plan().status;
        desk.fail(Purpose::Remove, "cannot delete ConfigMap");
        let outcome = Outcome { schedule_disabled: by_this_reconcile, ..desk.outcome.clone() };
        let after = desk.compute(&desired, &outcome);
        assert!(after.reclaim.as_ref().unwrap().schedule_disabled, "a user's edit would be overwritten");
        assert_eq!(condition(&after, "Scheduled").1, "EmergencyReclaimDisabledSchedule");
        let reasons: Vec<Reason> = desk.events(&after, &outcome).into_iter().map(|event| event.reason).collect();
        assert!(reasons.contains(&Reason::EmergencyReclaimDisabledSchedule), "{reasons:?}");
        // If disabling the schedule is what failed, the status does not report it as disabled.
        let not_disabled = desk.compute(&desired, &desk.outcome);
        assert_eq!(not_disabled.reclaim.unwrap().schedule_disabled, !by_this_reconcile);
    }
}
