//! What the status stores for later reconciles, by this process or another: times that are in the future, values that a user
//! wrote, and that two processes report the same.

use fivespot_api::{MachineFailure, Phase, keys};
use fivespot_planner::intent::stored_refs;
use fivespot_planner::observed::{
    Absence, Child, Cluster, Cordon, Machine, MachineHealth, ManagedNode, Node, Pods, ProviderChild, Refs,
};
use fivespot_planner::plan::{Action, Role, Step};
use fivespot_planner::status::Purpose;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::fixtures::{Desk, NAME, deleting_machine, node, running_machine};
use crate::messages::pods;

const CLOSED: &str = "2026-11-16T17:00:00Z";
const TOMORROW: &str = "2026-11-17T17:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A machine whose window has closed, with this status.
fn closed(status: &Value) -> Desk {
    let mut desk = Desk::with_status(status);
    desk.now = time(CLOSED);
    desk.observed.machine = Child::Managed(running_machine());
    desk.observed.node = Node::Managed(ManagedNode { cordon: Cordon::ByController, ..node() });
    desk.observed.pods = pods(1);
    desk
}

/// A machine whose window is open and whose Machine has failed.
fn failed(status: &Value) -> Desk {
    let mut desk = closed(status);
    desk.now = time("2026-11-16T08:00:00.7Z");
    let health = MachineHealth::Failed("NoPower: the plug is out".to_owned());
    desk.observed.machine = Child::Managed(Machine { health, ..running_machine() });
    desk
}

fn remove_machine(desk: &mut Desk) {
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
}

fn failure(retry_at: &str, count: i64) -> MachineFailure {
    MachineFailure {
        machine_uid: "m0".to_owned(),
        reason: "NoPower: the plug is out".to_owned(),
        count,
        retry_at: Time(time(retry_at)),
    }
}

/// Reconciles twice and asserts that the second reconcile, which may be one of another process, writes nothing.
fn reconcile_until_stable(desk: &mut Desk) {
    desk.reconcile();
    let (first, outcome) = (desk.status(), desk.outcome.clone());
    desk.now += SignedDuration::from_secs(1);
    desk.reconcile();
    desk.outcome = outcome;
    assert_eq!(desk.status(), first);
}

#[test]
fn shutdown_start_in_the_future_counts_as_now_in_every_flow() {
    type Change = fn(&mut Desk);
    let flows: [(&str, Change); 7] = [
        ("drain", |_| {}),
        ("unreachable", |it| it.observed.node = Node::Unreachable("connection refused".to_owned())),
        ("deletion of the Machine", |it| it.observed.machine = Child::Managed(deleting_machine())),
        ("kill switch", |it| it.object.spec.kill_switch = true),
        ("deletion", |it| it.object.metadata.deletion_timestamp = Some(Time(it.now))),
        ("failed Machine", |it| {
            it.now = time("2026-11-16T08:00:00Z");
            let health = MachineHealth::Failed("NoPower".to_owned());
            it.observed.machine = Child::Managed(Machine { health, ..running_machine() });
        }),
        ("failure", |it| it.fail(Purpose::Remove, "cannot cordon Node desk-01: no response within 10 s")),
    ];
    for (flow, change) in flows {
        let mut desk = closed(&json!({ "phase": "ShuttingDown", "shutdownStartedAt": TOMORROW }));
        change(&mut desk);
        let now = desk.now;
        desk.reconcile();
        let started = desk.status().shutdown_started_at.map(|it| it.0);
        assert_eq!(started, Some(now), "{flow}");
        desk.now += SignedDuration::from_secs(30);
        desk.reconcile();
        assert_eq!(desk.status().shutdown_started_at.map(|it| it.0), started, "{flow}: the start moves");
    }
}

#[test]
fn corrected_start_is_stored_before_the_next_eviction() {
    let desk = closed(&json!({ "phase": "ShuttingDown", "shutdownStartedAt": TOMORROW }));
    let steps = desk.plan().steps;
    assert!(matches!(steps[..], [Step::StoreStatus(_), Step::EvictPods(_)]), "{steps:?}");
}

#[test]
fn drain_deadline_is_reached_after_the_clock_was_stepped_back() {
    let mut desk = closed(&json!({ "phase": "ShuttingDown", "shutdownStartedAt": TOMORROW }));
    desk.reconcile();
    desk.now += SignedDuration::from_mins(5);
    let message = desk.reconcile().plan.status.message;
    assert!(message.starts_with("Drain timed out after 5m"), "{message}");
}

#[test]
fn new_process_counts_pods_from_the_start_of_the_drain() {
    let mut desk = closed(&json!({}));
    desk.observed.pods = pods(4);
    desk.reconcile();
    assert_eq!(desk.status().initial_pods, Some(4));
    desk.observed.pods = pods(1);
    reconcile_until_stable(&mut desk);
    assert!(desk.status().message.unwrap().contains("1 of 4 pods remaining"));
    // The next drain starts with a new count.
    desk.now = time("2026-11-17T08:00:00Z");
    desk.reconcile();
    assert_eq!((desk.status().phase, desk.status().initial_pods), (Some(Phase::Active), None));
}

#[test]
fn hundreds_of_rejected_pods_are_polled_less_often() {
    for kill_switch in [false, true] {
        let mut desk = closed(&json!({}));
        desk.object.spec.kill_switch = kill_switch;
        if kill_switch {
            desk.observed.machine = Child::Managed(deleting_machine());
        }
        for (count, seconds) in [(1, 2), (100, 2), (500, 10)] {
            desk.observed.pods = pods(count);
            let wake_at = desk.plan().wake_at.unwrap();
            assert_eq!(wake_at.duration_since(desk.now).as_secs(), seconds, "{count} pods, kill switch {kill_switch}");
        }
    }
}

#[test]
fn forged_number_of_pods_is_bounded() {
    for (forged, total) in [(i64::MAX, 10_000), (-5, 1), (0, 1)] {
        let status = json!({ "phase": "ShuttingDown", "shutdownStartedAt": CLOSED, "initialPods": forged });
        let mut desk = closed(&status);
        reconcile_until_stable(&mut desk);
        assert_eq!(desk.status().initial_pods, Some(total), "{forged}");
    }
}

#[test]
fn backoff_of_failed_machines_grows_and_survives_a_restart() {
    let mut desk = failed(&json!({}));
    for (uid, count, seconds) in
        [("a", 1, 30), ("b", 2, 60), ("c", 3, 120), ("d", 4, 240), ("e", 5, 300), ("f", 6, 300)]
    {
        let health = MachineHealth::Failed("NoPower".to_owned());
        desk.observed.machine = Child::Managed(Machine { uid: uid.to_owned(), health, ..running_machine() });
        desk.reconcile();
        let stored = desk.status().machine_failure.unwrap();
        assert_eq!((stored.machine_uid.as_str(), stored.count), (uid, count));
        let whole_second = Timestamp::from_second(desk.now.as_second()).unwrap();
        assert_eq!(stored.retry_at.0.duration_since(whole_second).as_secs(), seconds, "{uid}");
    }
    remove_machine(&mut desk);
    reconcile_until_stable(&mut desk);
    let message = desk.status().message.unwrap();
    assert_eq!(message, "The last Machine failed (NoPower); creating the next one at 2026-11-16T08:05:00Z");
    desk.now = time("2026-11-16T08:05:00Z");
    assert!(desk.reconcile().plan.steps.contains(&Step::CreateChildren));
    // A Ready Node ends it.
    desk.observed.machine = Child::Managed(running_machine());
    desk.observed.node = Node::Managed(ManagedNode { ready: false, ..node() });
    desk.reconcile();
    assert!(desk.status().machine_failure.is_some());
    desk.observed.node = Node::Managed(node());
    desk.reconcile();
    assert_eq!(desk.status().machine_failure, None);
}

#[test]
fn failure_is_stored_before_the_machine_is_removed() {
    // A shutdown is stored already, so that only the failure is new.
    let desk = failed(&json!({ "phase": "ShuttingDown", "shutdownStartedAt": "2026-11-16T07:59:00Z" }));
    let Step::StoreStatus(status) = &desk.plan().steps[0] else { panic!("{:?}", desk.plan().steps) };
    assert_eq!(status.machine_failure.as_ref().map(|it| it.machine_uid.as_str()), Some("m1"));
}

#[test]
fn forged_failure_is_bounded() {
    let stored = |failure: &MachineFailure| {
        let mut desk = failed(&json!({ "machineFailure": failure }));
        remove_machine(&mut desk);
        desk
    };
    // A time that is further away than any backoff counts as now.
    let mut desk = stored(&failure(TOMORROW, 1));
    assert!(desk.plan().steps.contains(&Step::CreateChildren), "{:?}", desk.plan());
    desk.observed.cluster = Cluster::Missing;
    reconcile_until_stable(&mut desk);
    let whole_second = "2026-11-16T08:00:00.7Z";
    assert_eq!(desk.status().machine_failure.unwrap().retry_at.0, time(whole_second));

    let mut desk =
        stored(&MachineFailure { reason: "é".repeat(100_000), ..failure("2026-11-16T08:03:00Z", i64::MAX) });
    reconcile_until_stable(&mut desk);
    assert!(desk.status().message.unwrap().len() < 1_000);
    for count in [i64::MIN, i64::MAX] {
        let mut desk = failed(&json!({ "machineFailure": failure("2026-11-16T08:03:00Z", count) }));
        desk.reconcile();
        let stored = desk.status().machine_failure.unwrap();
        assert!(stored.count > 0 && stored.retry_at.0 <= desk.now + SignedDuration::from_mins(5), "{stored:?}");
    }
}

#[test]
fn connecting_process_keeps_what_another_has_reported() {
    type Change = fn(&mut Desk);
    let flows: [(&str, Change); 3] = [
        ("drain", |_| {}),
        ("running", |it| it.now = time("2026-11-16T16:59:00Z")),
        ("failed Machine", |it| {
            it.now = time("2026-11-16T16:59:00Z");
            let health = MachineHealth::Failed("NoPower".to_owned());
            it.observed.machine = Child::Managed(Machine { health, ..running_machine() });
        }),
    ];
    for (flow, change) in flows {
        for observed in [Node::Unreachable("connection refused".to_owned()), Node::Managed(node())] {
            let mut desk = closed(&json!({}));
            change(&mut desk);
            desk.observed.node = observed;
            desk.reconcile();
            let reported = desk.status();
            (desk.observed.node, desk.observed.pods) = (Node::Connecting, Pods::NotRead);
            desk.reconcile();
            assert_eq!(desk.status(), reported, "{flow}");
        }
    }
}

/// Version and kind of a stored reference become part of request paths.
#[test]
fn forged_version_or_kind_makes_no_reference() {
    let refs = |version: &str, kind: &str| {
        let reference = |group: &str, child: &str| {
            json!({
                "apiVersion": format!("{group}.cluster.x-k8s.io/{version}"),
                "kind": kind,
                "name": format!("{NAME}-{child}"),
                "namespace": "team",
            })
        };
        let status = json!({
            "bootstrapRef": reference("bootstrap", "bootstrap"),
            "infrastructureRef": reference("infrastructure", "infra"),
        });
        stored_refs(NAME, &serde_json::from_value(status).unwrap(), None)
    };
    assert!(refs("v1beta1", "RemoteMachine").is_some());
    let long = "1".repeat(60_000);
    for (version, kind) in [
        ("v1beta1/namespaces/victim/remotemachines/desk-01-infra", "RemoteMachine"),
        ("v1?watch=true", "RemoteMachine"),
        ("", "RemoteMachine"),
        (&format!("v{long}"), "RemoteMachine"),
        ("v1beta1", "remote/machine"),
        ("v1beta1", &long),
    ] {
        assert_eq!(refs(version, kind), None, "{version:.60} {kind:.60}");
    }
}

fn recorded(desk: &Desk) -> Option<Refs> {
    desk.plan().steps.into_iter().find_map(|step| match step {
        Step::RecordIntent(refs) => Some(refs),
        _ => None,
    })
}

/// Edits the kind of the bootstrap object.
fn edit_kind(desk: &mut Desk) {
    desk.edit(|object| "OtherBoot".clone_into(&mut object.spec.bootstrap_spec.kind));
}

fn bootstrap_kind(desk: &Desk) -> Option<String> {
    desk.status().bootstrap_ref.map(|it| it.kind)
}

fn provider_child() -> Child<ProviderChild> {
    Child::Managed(ProviderChild { uid: "b1".to_owned(), deleting: false, adopted_by: None, fingerprint: None })
}

#[test]
fn creation_records_the_intent_and_reports_no_phase_before() {
    let mut desk = Desk::new();
    let steps = desk.plan().steps;
    assert!(matches!(steps[..], [Step::RecordIntent(_), Step::CreateChildren]), "{steps:?}");
    let written = desk.reconcile().written;
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].phase, written[0].observed_intent), (Some(Phase::Active), Some(1)));
    assert_eq!(bootstrap_kind(&desk).as_deref(), Some("Boot"));
}

#[test]
fn failed_creation_stores_the_refs_of_the_intent() {
    let mut desk = Desk::new();
    desk.fail(Purpose::Create, "cannot create Infra desk-01-infra: forbidden");
    desk.reconcile();
    assert_eq!((desk.status().phase, desk.status().observed_intent), (Some(Phase::Error), Some(1)));
    assert_eq!(bootstrap_kind(&desk).as_deref(), Some("Boot"));
    assert_eq!(desk.plan().steps, [Step::CreateChildren]);
}

#[test]
fn kind_edited_after_a_crash_replaces_what_the_intent_names() {
    let mut desk = Desk::new();
    let intent = recorded(&desk).unwrap();
    // The process ends after it has created the bootstrap object.
    desk.record_intent(intent);
    desk.observed.bootstrap = provider_child();
    edit_kind(&mut desk);
    let removal = desk.reconcile();
    let delete = Step::Run(Action::DeleteProviderObject { role: Role::Bootstrap, uid: "b1".to_owned() });
    assert!(removal.plan.steps.contains(&delete), "{:?}", removal.plan.steps);
    assert_eq!((bootstrap_kind(&desk).as_deref(), desk.status().observed_intent), (Some("Boot"), Some(1)));

    desk.observed.bootstrap = Child::Absent;
    let intent = recorded(&desk).unwrap();
    assert_eq!(intent.bootstrap.kind, "OtherBoot");
    desk.reconcile();
    assert_eq!((bootstrap_kind(&desk).as_deref(), desk.status().observed_intent), (Some("OtherBoot"), Some(2)));
}

#[test]
fn intent_of_an_earlier_window_is_ignored() {
    let mut desk = Desk::new();
    desk.reconcile();
    // The window closes, and the machine is removed.
    desk.now = time(CLOSED);
    desk.reconcile();
    assert_eq!((desk.status().phase, bootstrap_kind(&desk)), (Some(Phase::Inactive), None));
    // The next one opens with another kind, and the process ends before the status is written.
    desk.now = time("2026-11-17T08:00:00Z");
    edit_kind(&mut desk);
    let intent = recorded(&desk).unwrap();
    assert_eq!(intent.bootstrap.kind, "OtherBoot");
    desk.record_intent(intent);
    assert_eq!(desk.plan().steps, [Step::CreateChildren]);
    desk.reconcile();
    assert_eq!((bootstrap_kind(&desk).as_deref(), desk.status().observed_intent), (Some("OtherBoot"), Some(2)));
}

#[test]
fn window_that_closes_after_a_crash_drops_the_intent() {
    let mut desk = Desk::new();
    let intent = recorded(&desk).unwrap();
    desk.record_intent(intent);
    desk.now = time(CLOSED);
    reconcile_until_stable(&mut desk);
    assert_eq!((desk.status().phase, desk.status().observed_intent), (Some(Phase::Inactive), Some(1)));
    // Nothing that would have to be read is stored any more.
    (desk.observed.machine, desk.observed.bootstrap) = (Child::Absent, Child::NotRead);
    assert_eq!(desk.plan().steps, []);
}

#[test]
fn forged_intent_does_not_replace_refs_of_the_status() {
    let mut desk = Desk::new();
    desk.reconcile();
    desk.observed.machine = Child::Managed(running_machine());
    let forged = "9 k0smotron.io/v1beta1/Forged k0smotron.io/v1beta1/Forged".to_owned();
    desk.object.metadata.annotations.get_or_insert_default().insert(keys::CHILDREN_ANNOTATION.to_owned(), forged);
    reconcile_until_stable(&mut desk);
    assert_eq!((bootstrap_kind(&desk).as_deref(), desk.status().observed_intent), (Some("Boot"), Some(9)));
}
