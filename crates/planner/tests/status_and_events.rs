//! Status and events of one object over several reconciles: decided, computed and reported as the controller does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use fivespot_api::{Phase, ScheduledMachine, ScheduledMachineStatus};
use fivespot_planner::children::{self, MachineVersion};
use fivespot_planner::decide::{decide, undecided};
use fivespot_planner::events::Reason;
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::observed::{
    Absence, Child, Cluster, Exclusions, Machine, MachineHealth, Node, Observed, Pods, Stored,
};
use fivespot_planner::plan::{Decision, DesiredStatus, Plan};
use fivespot_planner::status::{self, Failure, Outcome, Purpose, StatusContext, stored_refs, transitions};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::Timestamp;
use serde_json::{Value, json};

const NAME: &str = "desk";
const NAMESPACE: &str = "team";

fn now() -> Timestamp {
    "2026-03-02T10:00:00Z".parse().unwrap()
}

/// A ScheduledMachine whose window is always open.
fn object(status: &Value) -> ScheduledMachine {
    serde_json::from_value(json!({
        "metadata": { "name": NAME, "namespace": NAMESPACE, "generation": 1 },
        "spec": {
            "schedule": { "cron": "* * * * *" },
            "clusterName": "edge",
            "bootstrapSpec": { "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "Boot", "spec": {} },
            "infrastructureSpec": { "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Infra", "spec": {} },
            "killIfCommands": ["idea"],
        },
        "status": status,
    }))
    .unwrap()
}

fn deleting_machine(fingerprint: &str) -> Machine {
    Machine {
        name: "desk-machine".to_owned(),
        uid: "m1".to_owned(),
        deleting: true,
        exclusions: Exclusions::ALL,
        health: MachineHealth::Running,
        node: None,
        provider_id: None,
        fingerprint: Some(fingerprint.to_owned()),
        created_at: Some(now()),
        live: true,
    }
}

/// One reconcile that has read everything a decision can need.
struct Reconcile {
    object: ScheduledMachine,
    spec: Result<ValidSpec, SpecErrors>,
    requested: RequestedState,
    observed: Observed,
}

impl Reconcile {
    fn of(object: &ScheduledMachine, machine: Child<Machine>) -> Self {
        let spec = validate(&object.spec, NAMESPACE, Standard::Stored);
        let status = object.status.clone().unwrap_or_default();
        let observed = Observed {
            has_finalizer: true,
            stored: Stored {
                refs: stored_refs(NAME, &status),
                has_child_uids: true,
                reclaim: status.reclaim,
                ..Stored::default()
            },
            desired: spec.as_ref().ok().map(|spec| children::desired(NAME, spec)),
            cluster: Cluster::Present,
            machine,
            bootstrap: Child::Absent,
            infrastructure: Child::Absent,
            node: Node::Absent(Absence::NotJoined),
            pods: Pods::Read { pods: Vec::new(), initial: 0 },
            recreate_backoff: None,
        };
        Reconcile { requested: RequestedState::of(object), object: object.clone(), spec, observed }
    }

    fn input(&self) -> DecisionInput<'_> {
        DecisionInput { requested: &self.requested, spec: self.spec.as_ref(), observed: &self.observed, now: now() }
    }

    fn plan(&self) -> Plan {
        match decide(&self.input()) {
            Decision::Execute(plan) => *plan,
            Decision::NeedsRead(read) => panic!("{read:?} was not read"),
        }
    }

    fn status(&self, desired: &DesiredStatus, outcome: &Outcome) -> ScheduledMachineStatus {
        let previous = self.object.status.clone().unwrap_or_default();
        let context = StatusContext {
            name: NAME,
            namespace: NAMESPACE,
            generation: self.object.metadata.generation,
            machine_version: MachineVersion::ALL[0],
            previous: &previous,
        };
        status::compute(context, &self.input(), desired, outcome)
    }

    fn events(&self, after: &ScheduledMachineStatus, outcome: &Outcome) -> Vec<Reason> {
        let before = self.object.status.clone().unwrap_or_default();
        transitions(&before, after, outcome, &self.input()).into_iter().map(|event| event.reason).collect()
    }
}

fn condition(status: &ScheduledMachineStatus, name: &str) -> (String, String) {
    let condition = status.conditions.iter().find(|it| it.type_ == name).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

/// Reconciles once, stores the status and returns the plan and the reasons of the events.
fn reconcile(object: &mut ScheduledMachine, machine: Child<Machine>) -> (Plan, Vec<Reason>) {
    let reconcile = Reconcile::of(object, machine);
    let (plan, outcome) = (reconcile.plan(), Outcome::default());
    let after = reconcile.status(&plan.status, &outcome);
    let events = reconcile.events(&after, &outcome);
    object.status = Some(after);
    (plan, events)
}

#[test]
fn kill_switch_set_during_reclaim_takes_effect_after_it() {
    for set_after_reclaim in [false, true] {
        // The machine is being reclaimed, the schedule is disabled.
        let reclaim =
            json!({ "machineUID": "m1", "reason": "idea", "scheduleDisabled": true, "inProgress": true, "count": 1 });
        let mut desk = object(&json!({ "phase": "EmergencyRemove", "observedGeneration": 1, "reclaim": reclaim }));
        desk.spec.schedule.enabled = false;
        let set_kill_switch = |desk: &mut ScheduledMachine| {
            desk.spec.kill_switch = true;
            desk.metadata.generation = Some(2);
        };
        if !set_after_reclaim {
            set_kill_switch(&mut desk);
        }
        let (_, during) = reconcile(&mut desk, Child::Managed(deleting_machine("any")));
        assert_eq!(desk.status.as_ref().unwrap().phase, Some(Phase::EmergencyRemove));
        let (last, at_end) = reconcile(&mut desk, Child::Absent);
        assert_eq!(desk.status.as_ref().unwrap().phase, Some(Phase::Disabled));
        // No watch event follows, so a kill switch that is already set requires an immediate reconcile.
        assert_eq!(last.wake_at, (!set_after_reclaim).then(now));
        set_kill_switch(&mut desk);
        let (_, afterwards) = reconcile(&mut desk, Child::Absent);
        let status = desk.status.clone().unwrap();
        assert_eq!(status.phase, Some(Phase::Terminated));
        assert_eq!(condition(&status, "Ready"), ("False".to_owned(), "KillSwitchActive".to_owned()));
        assert_eq!(afterwards, [Reason::KillSwitchActivated]);
        let (_, later) = reconcile(&mut desk, Child::Absent);
        let others = [during, at_end, later].concat();
        assert!(!others.contains(&Reason::KillSwitchActivated), "{others:?}");
    }
}

/// An object, a change of what is observed of it, and the expected status and reason of `ReferencesValid`.
type Case<'a> = (&'a ScheduledMachine, fn(&mut Observed), &'a str, &'a str);

#[test]
fn failed_read_does_not_change_references_valid() {
    let mut rejected = object(&json!({}));
    rejected.spec.infrastructure_spec.api_version = "apps/v1".to_owned();
    let valid = object(&json!({}));
    let cases: [Case<'_>; 6] = [
        (&valid, |it| it.cluster = Cluster::Missing, "False", "ClusterNotFound"),
        (&valid, |it| it.cluster = Cluster::Paused, "False", "ClusterPaused"),
        (&valid, |it| it.infrastructure = Child::Unmanaged("other".to_owned()), "False", "NameConflict"),
        (&valid, |it| it.machine = Child::Managed(deleting_machine("another spec")), "True", "ValidNextWindow"),
        (&rejected, |_| {}, "False", "GroupNotAllowed"),
        (&valid, |_| {}, "True", "Valid"),
    ];
    for (object, change, status, reason) in cases {
        let mut reconcile = Reconcile::of(object, Child::Absent);
        change(&mut reconcile.observed);
        let message = "no answer within 30 s".to_owned();
        let failure = Failure { purpose: Purpose::Maintain, message, references: None };
        let outcome = Outcome { failure: Some(failure), ..Outcome::default() };
        let computed = reconcile.status(&undecided(&reconcile.input()), &outcome);
        assert_eq!(condition(&computed, "ReferencesValid"), (status.to_owned(), reason.to_owned()));
        assert_eq!(computed.message.as_deref(), Some("no answer within 30 s"));
    }
}

#[test]
fn disabled_schedule_is_reported_despite_later_failure() {
    let reclaim =
        json!({ "machineUID": "m1", "reason": "idea", "scheduleDisabled": false, "inProgress": true, "count": 1 });
    // The schedule is disabled by the reconcile that fails, or by an earlier one whose status was not stored.
    for by_this_reconcile in [true, false] {
        let mut desk = object(&json!({ "phase": "EmergencyRemove", "observedGeneration": 1, "reclaim": reclaim }));
        desk.spec.schedule.enabled = by_this_reconcile;
        let reconcile = Reconcile::of(&desk, Child::Managed(deleting_machine("any")));
        let desired = reconcile.plan().status;
        let fail = |schedule_disabled: bool| {
            let message = "cannot delete ConfigMap".to_owned();
            let failure = Failure { purpose: Purpose::Remove, message, references: None };
            let outcome = Outcome { failure: Some(failure), schedule_disabled, ..Outcome::default() };
            (reconcile.status(&desired, &outcome), outcome)
        };
        let (after, outcome) = fail(by_this_reconcile);
        assert!(after.reclaim.as_ref().unwrap().schedule_disabled, "a user's edit would be overwritten");
        assert_eq!(condition(&after, "Scheduled").1, "EmergencyReclaimDisabledSchedule");
        let events = reconcile.events(&after, &outcome);
        assert!(events.contains(&Reason::EmergencyReclaimDisabledSchedule), "{events:?}");
        // If disabling the schedule is what failed, the status does not claim it.
        let (not_disabled, _) = fail(false);
        assert_eq!(not_disabled.reclaim.unwrap().schedule_disabled, !by_this_reconcile);
    }
}
