//! Many machines: the number of requests, order, and idle cost.
//!
//! In a binary of its own, because a Cluster API that is busy with 200 Machines would delay other tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

mod fixtures;

use std::collections::BTreeMap;
use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::audit::{AuditEntry, Entries};
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{ControlPlaneOptions, TestNamespace, Testbed};
use fixtures::{
    CONTROLLER_USER, Controller, PhaseRecorder, TestMachine, agent_rollout, always, namespace_with_cluster, never,
    request_reclaim, scheduled_machine, sent_by_controller, testbed, wait_for, wait_until_reclaimable,
};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The tests run one after the other, so that none slows down another.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const BURST: usize = 200;
/// From creation to Active: finalizer and intent, bootstrap, infrastructure, Machine, status.
const REQUESTS_PER_OBJECT: usize = 5;
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
async fn burst_needs_five_requests_per_object_and_no_error() {
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
        assert_eq!(phases, [Phase::Active], "{name}");
    }

    // Each object has one event of each, none is lost and none is sent twice.
    wait_for("all events are published", async || {
        let published = ns.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let count = |reason: &str| published.iter().filter(|it| it.reason.as_deref() == Some(reason)).count();
        let counts = (count("MachineCreated"), count("ScheduleActivated"));
        if counts == (BURST, BURST) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;

    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name);
    let events = requests.clone().on("events");
    assert_eq!(events.len(), 2 * BURST);
    let requests = requests.filter(|it| it.group != "events.k8s.io" && it.verb != "watch" && it.verb != "list");
    assert_eq!(requests.len(), BURST * REQUESTS_PER_OBJECT, "{:#?}", count_by_kind(&requests));
    let failed = requests.filter(|it| !it.succeeded());
    assert!(failed.is_empty(), "{failed:#?}");
    ns.close().await;
}

/// How often objects are created and deleted, and how many.
fn churn() -> (usize, usize) {
    if fivespot_testbed::is_long() { (10, 1000) } else { (3, 60) }
}

#[tokio::test]
async fn nothing_is_kept_about_objects_that_were_deleted() {
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("churn").await;
    let controller = Controller::start(testbed, &ns).await;
    let (rounds, objects) = churn();
    let mut memory = Vec::new();
    for round in 0..rounds {
        // Other names in each round: what is kept by name would not grow otherwise.
        let names: Vec<String> = (0..objects).map(|it| format!("desk-{round}-{it:04}")).collect();
        create_all(&ns, &names, 50).await;
        for name in &names {
            TestMachine::new(&ns, name).wait_until_running().await;
        }
        stream::iter(&names)
            .for_each_concurrent(CONCURRENT_CREATES, async |name| TestMachine::new(&ns, name).delete().await)
            .await;
        for name in &names {
            TestMachine::new(&ns, name).wait_until_deleted().await;
        }
        wait_for("nothing is kept", async || {
            let metrics = controller.metrics().await;
            let entries: Vec<&str> =
                metrics.lines().filter(|it| it.starts_with("fivespot_internal_entries{")).collect();
            assert!(entries.len() > 5, "{metrics}");
            let kept: Vec<&str> = entries.into_iter().filter(|it| !it.ends_with("} 0")).collect();
            if kept.is_empty() { Ok(()) } else { Err(format!("{kept:?}")) }
        })
        .await;
        memory.push(controller.resident_memory().0);
    }
    println!("{memory:.1?} MiB after each round");
    // The first round fills the buffers of connections and of the allocator.
    let (second, last) = (memory[1], memory[rounds - 1]);
    assert!(last < second * 1.3 + 4.0, "{memory:?} MiB after each round");
    ns.close().await;
}

#[tokio::test]
async fn later_window_needs_five_requests_per_object() {
    const OBJECTS: usize = 20;
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("later-window").await;
    never_join(&ns).await;
    let _controller = Controller::start(testbed, &ns).await;
    let names = names("desk", OBJECTS);
    create_all(&ns, &names, 50).await;
    let set_all = async |schedule: &Value, phase: Phase| {
        for name in &names {
            TestMachine::new(&ns, name).set_schedule(schedule).await;
        }
        for name in &names {
            TestMachine::new(&ns, name).wait_for_phase(phase).await;
        }
    };
    set_all(&always(), Phase::Active).await;
    let mark = testbed.audit().mark();
    set_all(&never(), Phase::Inactive).await;
    testbed.audit().caught_up(&ns.client).await;
    // That the children no longer exist is no reason to look for another version of their kinds.
    let discovery = testbed.audit().since(mark).by(CONTROLLER_USER).filter(|it| it.resource.is_empty());
    assert!(discovery.is_empty(), "{discovery:#?}");
    let mark = testbed.audit().mark();
    set_all(&always(), Phase::Active).await;
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name);
    let requests = requests.filter(|it| it.group != "events.k8s.io" && it.verb != "watch" && it.verb != "list");
    assert_eq!(requests.len(), OBJECTS * REQUESTS_PER_OBJECT, "{:#?}", count_by_kind(&requests));
    ns.close().await;
}

#[tokio::test]
async fn higher_priority_goes_first_across_clusters() {
    const CLUSTERS: usize = 8;
    const PER_CLUSTER: usize = 20;
    const WRITES: usize = 4;
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = testbed.namespace("priorities").await;
    never_join(&ns).await;
    for cluster in 0..CLUSTERS {
        testbed.cluster(&ns, &format!("edge-{cluster}")).await.unwrap();
    }
    // Names sort by cluster, and priorities alternate within each.
    stream::iter(0..CLUSTERS * PER_CLUSTER)
        .for_each_concurrent(CONCURRENT_CREATES, async |number| {
            let (cluster, member) = (number / PER_CLUSTER, number % PER_CLUSTER);
            let priority = if member % 2 == 0 { 10 } else { 90 };
            let machine = scheduled_machine(&ns, &format!("desk-{number:03}-{priority}"));
            machine.cluster(&format!("edge-{cluster}")).priority(priority).create().await;
        })
        .await;
    let args = ["--namespace", &ns.name, "--max-concurrent-writes", &WRITES.to_string()];
    let _controller = Controller::start_with_args(testbed, &args).await;
    let created = || {
        let writes = testbed.audit().entries().by(CONTROLLER_USER).in_namespace(&ns.name).on("machines").succeeded();
        writes.filter(|it| it.verb == "create")
    };
    wait_for("all Machines are created", async || created().len() == CLUSTERS * PER_CLUSTER).await;
    let half = CLUSTERS * PER_CLUSTER / 2;
    let lower = created().0.iter().take(half).filter(|it| it.name.ends_with("-10-machine")).count();
    // A permit is granted to a lower priority only while no higher one waits for it, which is the case when fewer objects of
    // the higher priority are left than there are permits.
    assert!(lower <= WRITES, "{lower} of the first {half} Machines have the lower priority");
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
async fn writes_of_reclaim_bypass_writes_of_many_clusters() {
    const CLUSTERS: usize = 8;
    const WRITES: usize = 4;
    let _serial = SERIAL.lock().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("many-clusters").await;
    let args = ["--namespace", &ns.name, "--max-concurrent-writes", &WRITES.to_string()];
    let _controller = Controller::start_with_args(testbed, &args).await;
    let sm = scheduled_machine(&ns, "desk").kill_if_command("java").priority(1).create_running().await;
    wait_for("the agent is rolled out", async || matches!(agent_rollout(&sm, &ns.client).await, (true, Some(_)))).await;
    never_join(&ns).await;
    for cluster in 0..CLUSTERS {
        testbed.cluster(&ns, &format!("edge-{cluster}")).await.unwrap();
    }
    stream::iter(0..BURST)
        .for_each_concurrent(CONCURRENT_CREATES, async |number| {
            let machine = scheduled_machine(&ns, &format!("burst-{number:03}")).priority(99).disabled();
            machine
                .cluster(&format!("edge-{}", number % CLUSTERS))
                .create()
                .await
                .wait_for_phase(Phase::Disabled)
                .await;
        })
        .await;

    let mark = testbed.audit().mark();
    stream::iter(0..BURST)
        .for_each_concurrent(CONCURRENT_CREATES, async |number| {
            TestMachine::new(&ns, &format!("burst-{number:03}")).set_enabled(true).await;
        })
        .await;
    request_reclaim(&sm).await;
    sm.wait_until("reclaimed", |status| status.reclaim.is_some()).await;
    for number in 0..BURST {
        TestMachine::new(&ns, &format!("burst-{number:03}")).wait_for_phase(Phase::Active).await;
    }
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name).writes();
    let writes = writes.filter(|it| it.resource != "events").0;
    let stored = writes.iter().find(|it| it.name == "desk" && it.subresource == "status").unwrap();
    let deleted = writes.iter().find(|it| it.name == sm.machine_name() && it.verb == "delete").unwrap();
    let is_other = |it: &&AuditEntry| !it.name.starts_with("desk");
    let after = writes.iter().filter(is_other).filter(|it| it.received > deleted.received).count();
    assert!(after > BURST, "only {after} writes followed the deletion: the burst was too short");
    // Two writes of the reclaim follow the first one: each waits for no more than those in flight, and meanwhile few others
    // are sent. In the order of arrival they would wait for a write of each object that is being reconciled.
    let between = |it: &&AuditEntry| it.received > stored.at && it.received < deleted.received;
    let delayed_by = writes.iter().filter(is_other).filter(between).count();
    assert!(
        delayed_by <= 5 * WRITES,
        "{delayed_by} other writes between the first write of the reclaim and the deletion"
    );
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

/// Requests by the controller under any user, except watches, which are renewed every few minutes, and the check of the
/// version that precedes a renewal.
fn controller_requests(entries: Entries) -> Entries {
    let is_version_check = |uri: &str| uri.ends_with("&resourceVersionMatch=NotOlderThan");
    entries.filter(sent_by_controller).filter(|it| it.verb != "watch" && !is_version_check(&it.uri))
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
