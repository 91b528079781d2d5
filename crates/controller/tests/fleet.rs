//! Many machines: the number of requests, order, and idle cost.
//!
//! In a binary of its own, because a Cluster API that is busy with 200 Machines would delay other tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

mod fixtures;

use std::collections::BTreeMap;
use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::audit::Entries;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{ControlPlaneOptions, TestNamespace, Testbed};
use fixtures::{
    CONTROLLER_USER, Controller, PhaseRecorder, TestMachine, namespace_with_cluster, request_reclaim,
    scheduled_machine, sent_by_controller, testbed, wait_for, wait_until_reclaimable,
};
use futures::{StreamExt as _, stream};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

/// The tests run one after the other, so that none slows down another.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const BURST: usize = 200;
/// From creation to Active: finalizer, status (intent), bootstrap, infrastructure, Machine, status.
const REQUESTS_PER_OBJECT: usize = 6;
const CONCURRENT_CREATES: usize = 16;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|it| format!("{prefix}-{it:03}")).collect()
}

async fn create_all(ns: &TestNamespace, names: &[String], priority: u8) {
    stream::iter(names)
        .for_each_concurrent(CONCURRENT_CREATES, async |name| {
            scheduled_machine(ns, name).priority(priority).create().await;
        })
        .await;
}

/// Makes the provider never finish a machine, so that only the creation is measured.
async fn never_join(ns: &TestNamespace) {
    let behaviour = Behaviour { infrastructure: Step::Never, ..Behaviour::default() };
    testbed().await.fleet().await.provider.behave_in(&ns.name, behaviour);
}

#[tokio::test]
async fn burst_needs_six_requests_per_object_and_no_error() {
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("burst").await;
    never_join(&ns).await;
    create_all(&ns, &names("desk", BURST), 50).await;

    let phases = PhaseRecorder::start(&ns);
    let mark = testbed.audit().mark();
    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    for (name, phases) in phases.wait_until_all_in(Phase::Active, BURST).await {
        assert_eq!(phases, [Phase::Pending, Phase::Active], "{name}");
    }

    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name);
    let events = requests.clone().on("events");
    assert!(events.len() <= 2 * BURST, "{}", events.len());
    let requests = requests.filter(|it| it.group != "events.k8s.io" && it.verb != "watch" && it.verb != "list");
    assert_eq!(requests.len(), BURST * REQUESTS_PER_OBJECT, "{:#?}", count_by_kind(&requests));
    let failed = requests.filter(|it| !it.succeeded());
    assert!(failed.is_empty(), "{failed:#?}");
    ns.close().await;
}

#[tokio::test]
async fn reclaim_bypasses_burst() {
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("burst-and-reclaim").await;
    // With a single concurrent write the burst has to queue.
    let args = ["--namespace", &ns.name, "--max-concurrent-writes", "1"];
    let _controller = Controller::start_with_args(testbed, &args).await;
    let sm = scheduled_machine(&ns, "desk").kill_if_command("java").priority(1).create_running().await;
    wait_until_reclaimable(&sm).await;
    never_join(&ns).await;

    let mark = testbed.audit().mark();
    let burst = names("burst", BURST);
    create_all(&ns, &burst, 99).await;
    request_reclaim(&sm).await;
    for name in &burst {
        TestMachine::new(&ns, name).wait_for_phase(Phase::Active).await;
    }
    sm.wait_until("reclaimed", |status| status.reclaim.is_some()).await;
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name).on("machines").writes();
    let writes = writes.succeeded().0;
    let deleted = writes.iter().position(|it| it.verb == "delete").unwrap();
    let created = writes.iter().skip(deleted).filter(|it| it.verb == "create").count();
    assert!(created > BURST / 4, "only {created} Machines were created after the reclaimed one was deleted");
    ns.close().await;
}

#[tokio::test]
async fn idle_fleet_sends_no_requests() {
    let _serial = SERIAL.lock().await;
    // A control plane of its own, so that every request by a controller is by this one.
    let testbed = &Testbed::start_with_fleet(ControlPlaneOptions::named("idle")).await.unwrap();
    testbed.control_plane().install_without_controller().await.unwrap();
    let ns = testbed.namespace("idle").await;
    testbed.cluster(&ns, "edge").await.unwrap();
    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let names = names("desk", 100);
    create_all(&ns, &names, 50).await;
    stream::iter(&names)
        .for_each_concurrent(CONCURRENT_CREATES, async |name| {
            TestMachine::new(&ns, name).wait_until_running().await;
        })
        .await;
    // An invalid spec is not retried either.
    let invalid = json!({ "cron": "0 9 * * *", "timezone": "Mars/Olympus" });
    let invalid = scheduled_machine(&ns, "invalid").schedule(invalid).create().await;
    invalid.wait_for_phase(Phase::Error).await;
    let versions = resource_versions(&ns).await;

    wait_for("the controller is idle", async || {
        let mark = testbed.audit().mark();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let requests = controller_requests(testbed.audit().since(mark));
        if requests.is_empty() { Ok(()) } else { Err(format!("{requests:#?}")) }
    })
    .await;
    let mark = testbed.audit().mark();
    let end = Instant::now() + Duration::from_secs(65);
    let mut heartbeats = 0;
    while Instant::now() < end {
        for name in &names {
            send_heartbeat(&TestMachine::new(&ns, name)).await;
            heartbeats += 1;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(heartbeats >= 2 * names.len(), "{heartbeats}");
    testbed.audit().caught_up(&ns.client).await;
    let requests = controller_requests(testbed.audit().since(mark));
    assert!(requests.is_empty(), "{requests:#?}");
    assert_eq!(versions, resource_versions(&ns).await, "an unchanged status was written");

    let sm = TestMachine::new(&ns, "desk-042");
    sm.set_enabled(false).await;
    sm.wait_for_phase(Phase::Disabled).await;
    ns.close().await;
}

/// Updates the Node's heartbeat as a kubelet does.
async fn send_heartbeat(sm: &TestMachine<'_>) {
    let now = jiff::Timestamp::now().to_string();
    let patch =
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": now }] } });
    sm.nodes().patch_status(&sm.node_name(), &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

/// Requests by the controller under any user, except watches, which are renewed every few minutes.
fn controller_requests(entries: Entries) -> Entries {
    entries.filter(sent_by_controller).filter(|it| it.verb != "watch")
}

async fn resource_versions(ns: &TestNamespace) -> Vec<Option<String>> {
    let objects = ns.api::<ScheduledMachine>().list(&ListParams::default()).await.unwrap();
    objects.items.into_iter().map(|object| object.metadata.resource_version).collect()
}

fn count_by_kind(entries: &Entries) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    entries.0.iter().for_each(|it| *counts.entry(format!("{} {} {}", it.verb, it.target(), it.code)).or_default() += 1);
    counts
}
