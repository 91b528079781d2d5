//! What an object tells of itself when two things happen to it at once: decided, folded and told as the controller does it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use fivespot_api::{Phase, ScheduledMachine, ScheduledMachineStatus};
use fivespot_planner::children::{self, MachineVersion};
use fivespot_planner::decide::{Situation, decide, unknown};
use fivespot_planner::event::{Reason, transitions};
use fivespot_planner::intent::Intent;
use fivespot_planner::observed::{Cluster, Health, Machine, Marks, Node, Observed, Pods, Slot, Stored};
use fivespot_planner::plan::{Decision, Plan, Standing};
use fivespot_planner::status::{Doing, Done, Failure, Subject, fold, stored_refs};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::Timestamp;
use serde_json::{Value, json};

const NAME: &str = "desk";
const NAMESPACE: &str = "team";

fn now() -> Timestamp {
    "2026-03-02T10:00:00Z".parse().unwrap()
}

/// A machine that is always in.
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

fn machine(fingerprint: &str) -> Machine {
    Machine {
        uid: "m1".to_owned(),
        deleting: true,
        marks: Marks::ALL,
        health: Health::Running,
        node: None,
        provider_id: None,
        fingerprint: Some(fingerprint.to_owned()),
        created_at: Some(now()),
        confirmed: true,
    }
}

/// One look, with all that a decision could ask for.
struct Scene {
    object: ScheduledMachine,
    spec: Result<ValidSpec, SpecErrors>,
    intent: Intent,
    seen: Observed,
}

impl Scene {
    fn of(object: &ScheduledMachine, machine: Slot<Machine>) -> Self {
        let spec = validate(&object.spec, NAMESPACE, Standard::Stored);
        let status = object.status.clone().unwrap_or_default();
        let seen = Observed {
            finalizer: true,
            stored: Stored {
                refs: stored_refs(NAME, &status),
                uids_known: true,
                reclaiming: status.phase == Some(Phase::EmergencyRemove),
                reclaim: status.reclaim,
                ..Stored::default()
            },
            wanted: spec.as_ref().ok().map(|it| children::wanted(NAME, it)),
            cluster: Cluster::Present,
            machine,
            bootstrap: Slot::Absent,
            infrastructure: Slot::Absent,
            node: Node::None,
            pods: Pods::Read { now: Vec::new(), at_first: 0 },
            held_off: None,
        };
        Scene { intent: Intent::of(object), object: object.clone(), spec, seen }
    }

    fn situation(&self) -> Situation<'_> {
        Situation { intent: &self.intent, spec: self.spec.as_ref(), seen: &self.seen, now: now() }
    }

    fn decided(&self) -> Plan {
        match decide(self.situation()) {
            Decision::Do(plan) => *plan,
            Decision::ProbeResult(look) => panic!("{look:?} is not there to be seen"),
        }
    }

    fn folded(&self, standing: &Standing, done: &Done) -> ScheduledMachineStatus {
        let before = self.object.status.clone().unwrap_or_default();
        let subject = Subject {
            name: NAME,
            namespace: NAMESPACE,
            generation: self.object.metadata.generation,
            machine_version: MachineVersion::ALL[0],
            before: &before,
        };
        fold(subject, &self.situation(), standing, done)
    }
}

fn condition(status: &ScheduledMachineStatus, name: &str) -> (String, String) {
    let found = status.conditions.iter().find(|it| it.type_ == name).unwrap();
    (found.status.clone(), found.reason.clone())
}

/// What one pass tells, and how it leaves the object.
fn pass(object: &mut ScheduledMachine, machine: Slot<Machine>) -> (Plan, Vec<Reason>) {
    let scene = Scene::of(object, machine);
    let (plan, done) = (scene.decided(), Done::default());
    let after = scene.folded(&plan.standing, &done);
    let told = transitions(&object.status.clone().unwrap_or_default(), &after, &done);
    object.status = Some(after);
    (plan, told.into_iter().map(|it| it.reason).collect())
}

#[test]
fn a_kill_switch_that_is_turned_on_during_a_reclaim_counts_from_its_end_on_and_is_told_once() {
    for edits_it_after_the_end in [false, true] {
        // Given back, the schedule disabled, and on its way out.
        let reclaim = json!({ "machineUID": "m1", "reason": "idea", "scheduleDisabled": true, "count": 1 });
        let mut desk = object(&json!({ "phase": "EmergencyRemove", "observedGeneration": 1, "reclaim": reclaim }));
        desk.spec.schedule.enabled = false;
        let kill = |desk: &mut ScheduledMachine| {
            desk.spec.kill_switch = true;
            desk.metadata.generation = Some(2);
        };
        if !edits_it_after_the_end {
            kill(&mut desk);
        }
        let (_, during) = pass(&mut desk, Slot::Ours(machine("any")));
        assert_eq!(desk.status.as_ref().unwrap().phase, Some(Phase::EmergencyRemove));
        let (last, at_the_end) = pass(&mut desk, Slot::Absent);
        assert_eq!(desk.status.as_ref().unwrap().phase, Some(Phase::Disabled));
        // Nothing will happen to the object by itself, so whoever asked for more is looked after at once.
        assert_eq!(last.wake_at, (!edits_it_after_the_end).then(now));
        kill(&mut desk);
        let (_, then) = pass(&mut desk, Slot::Absent);
        let status = desk.status.clone().unwrap();
        assert_eq!(status.phase, Some(Phase::Terminated));
        assert_eq!(condition(&status, "Ready"), ("False".to_owned(), "KillSwitchActive".to_owned()));
        assert_eq!(then, [Reason::KillSwitchActivated]);
        let (_, later) = pass(&mut desk, Slot::Absent);
        let others = [during, at_the_end, later].concat();
        assert!(!others.contains(&Reason::KillSwitchActivated), "{others:?}");
    }
}

/// An object, something about what is seen of it, and the status and reason of `ReferencesValid`.
type Case<'a> = (&'a ScheduledMachine, fn(&mut Scene), &'a str, &'a str);

#[test]
fn a_look_that_failed_makes_nothing_valid_that_is_not() {
    let mut refused = object(&json!({}));
    refused.spec.infrastructure_spec.api_version = "apps/v1".to_owned();
    let fine = object(&json!({}));
    let cases: [Case<'_>; 6] = [
        (&fine, |it| it.seen.cluster = Cluster::Missing, "False", "ClusterNotFound"),
        (&fine, |it| it.seen.cluster = Cluster::Paused, "False", "ClusterPaused"),
        (&fine, |it| it.seen.infrastructure = Slot::Foreign("other".to_owned()), "False", "NameConflict"),
        (&fine, |it| it.seen.machine = Slot::Ours(machine("another spec")), "True", "ValidNextWindow"),
        (&refused, |_| {}, "False", "GroupNotAllowed"),
        (&fine, |_| {}, "True", "Valid"),
    ];
    for (object, change, status, reason) in cases {
        let mut scene = Scene::of(object, Slot::Absent);
        change(&mut scene);
        let why = "no answer within 30 s".to_owned();
        let failure = Failure { doing: Doing::Keeping, why, references: None };
        let done = Done { failure: Some(failure), ..Done::default() };
        let told = scene.folded(&unknown(&scene.situation()), &done);
        assert_eq!(condition(&told, "ReferencesValid"), (status.to_owned(), reason.to_owned()));
        assert_eq!(told.message.as_deref(), Some("no answer within 30 s"));
    }
}

#[test]
fn a_schedule_that_a_reclaim_has_disabled_is_told_to_be_whatever_fails_after_it() {
    let reclaim = json!({ "machineUID": "m1", "reason": "idea", "scheduleDisabled": false, "count": 1 });
    // In the pass that fails, or in one before it, of which nothing was stored.
    for in_this_pass in [true, false] {
        let mut desk = object(&json!({ "phase": "EmergencyRemove", "observedGeneration": 1, "reclaim": reclaim }));
        desk.spec.schedule.enabled = in_this_pass;
        let scene = Scene::of(&desk, Slot::Ours(machine("any")));
        let standing = scene.decided().standing;
        let fails = |schedule_disabled: bool| {
            let why = "cannot delete ConfigMap".to_owned();
            let failure = Failure { doing: Doing::Removing, why, references: None };
            let done = Done { failure: Some(failure), schedule_disabled, ..Done::default() };
            (scene.folded(&standing, &done), done)
        };
        let before = desk.status.clone().unwrap();
        let (after, done) = fails(in_this_pass);
        assert!(after.reclaim.as_ref().unwrap().schedule_disabled, "a person's edit would be undone");
        assert_eq!(condition(&after, "Scheduled").1, "EmergencyReclaimDisabledSchedule");
        let told: Vec<Reason> = transitions(&before, &after, &done).into_iter().map(|it| it.reason).collect();
        assert!(told.contains(&Reason::EmergencyReclaimDisabledSchedule), "{told:?}");
        // Where it is what failed, nothing of it is told.
        let (not_done, _) = fails(false);
        assert_eq!(not_done.reclaim.unwrap().schedule_disabled, !in_this_pass);
    }
}
