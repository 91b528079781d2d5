//! Many at once: no request too many, and nobody in Error.
//!
//! Apart from the other tests, which would wait long for a Cluster API that is busy with two hundred machines.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

mod fixtures;

use std::collections::BTreeMap;

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::audit::Entries;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use fixtures::{CONTROLLER, Controller, Desk, SOON, always, testbed};
use futures::{StreamExt as _, stream};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;

/// Neither crowd slows the other down.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const CROWD: usize = 200;
/// Creation to Active: finalizer, intent, bootstrap, infrastructure, Machine, status.
const REQUESTS: usize = 6;

#[tokio::test]
async fn two_hundred_that_waited_for_the_controller_come_in_with_six_requests_each_and_none_in_error() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let testbed = testbed().await;
    let test = testbed.namespace("crowd").await;
    testbed.cluster(&test, "edge").await.unwrap();
    // What follows once a machine has joined is not what is counted here.
    let slow = Behaviour { infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&test.name, slow);
    let names: Vec<String> = (0..CROWD).map(|it| format!("desk-{it:03}")).collect();
    stream::iter(&names)
        .for_each_concurrent(16, async |name| Desk::new(&test, name).create(&always(), &json!({})).await)
        .await;

    // Everything that is ever seen of them.
    let api = test.api::<ScheduledMachine>();
    let seen = tokio::spawn(async move {
        let mut phases: BTreeMap<String, Vec<Phase>> = BTreeMap::new();
        let mut stream = Box::pin(watcher(api, watcher::Config::default()));
        while let Some(event) = stream.next().await {
            let (watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event.unwrap() else { continue };
            let Some(phase) = object.status.and_then(|it| it.phase) else { continue };
            phases.entry(object.metadata.name.unwrap()).or_default().push(phase);
            if phases.len() == CROWD && phases.values().all(|it| it.last() == Some(&Phase::Active)) {
                break;
            }
        }
        phases
    });
    let mark = testbed.audit().mark();
    let controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    let phases = tokio::time::timeout(SOON, seen).await.expect("all are Active").unwrap();
    for (name, phases) in &phases {
        assert_eq!(phases.as_slice(), [Phase::Pending, Phase::Active], "{name}");
    }

    testbed.audit().caught_up(&test.client).await;
    let sent = testbed.audit().since(mark).by(CONTROLLER).in_namespace(&test.name);
    let of_objects = sent.filter(|it| it.group != "events.k8s.io" && it.verb != "watch" && it.verb != "list");
    assert_eq!(of_objects.len(), CROWD * REQUESTS, "{:#?}", count(&of_objects));
    let refused = of_objects.filter(|it| !it.succeeded());
    assert!(refused.is_empty(), "{refused:#?}");
    let events = testbed.audit().since(mark).by(CONTROLLER).in_namespace(&test.name).on("events");
    assert!(events.len() <= 2 * CROWD, "{}", events.len());
    test.close().await;
}

/// An owner does not wait until everybody else's machine is there.
#[tokio::test]
async fn a_machine_that_is_wanted_back_goes_before_a_crowd_that_comes() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let testbed = testbed().await;
    let test = testbed.namespace("crowd and owner").await;
    testbed.cluster(&test, "edge").await.unwrap();
    // With one write at a time the crowd has to wait.
    let _controller =
        Controller::start_with(testbed, &["--namespace", &test.name, "--max-concurrent-writes", "1"]).await;
    let desk = Desk::new(&test, "desk");
    desk.create(&always(), &json!({ "killIfCommands": ["java"], "priority": 1 })).await;
    desk.runs().await;
    let slow = Behaviour { infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&test.name, slow);

    let mark = testbed.audit().mark();
    let names: Vec<String> = (0..CROWD).map(|it| format!("crowd-{it:03}")).collect();
    stream::iter(&names)
        .for_each_concurrent(16, async |name| {
            Desk::new(&test, name).create(&always(), &json!({ "priority": 99 })).await;
        })
        .await;
    let asked = json!({ "metadata": { "annotations": { "5spot.finos.org/reclaim-requested": "true" } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    for name in &names {
        Desk::new(&test, name).reaches(Phase::Active).await;
    }
    desk.until("given back", |it| it.reclaim.is_some()).await;
    testbed.audit().caught_up(&test.client).await;
    let sent = testbed.audit().since(mark).by(CONTROLLER).in_namespace(&test.name).on("machines").writes().succeeded();
    let deleted = sent.0.iter().position(|it| it.verb == "delete").unwrap();
    let made = sent.0.iter().skip(deleted).filter(|it| it.verb == "create").count();
    assert!(made > CROWD / 4, "only {made} were made after the owner's machine was let go");
    test.close().await;
}

#[tokio::test]
async fn a_hundred_idle_machines_with_live_nodes_cost_no_request_and_an_edit_is_still_acted_on() {
    let _turn = ONE_AT_A_TIME.lock().await;
    // On its own, so that every request of a controller is one of this controller.
    let testbed = &Testbed::start_with_fleet(ControlPlaneOptions::named("quiet")).await.unwrap();
    testbed.control_plane().install_without_controller().await.unwrap();
    let test = testbed.namespace("quiet").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    let names: Vec<String> = (0..100).map(|it| format!("desk-{it:03}")).collect();
    stream::iter(&names)
        .for_each_concurrent(16, async |name| Desk::new(&test, name).create(&always(), &json!({})).await)
        .await;
    stream::iter(&names).for_each_concurrent(16, async |name| drop(Desk::new(&test, name).runs().await)).await;
    // What is wrong until somebody edits it is not tried again either.
    let broken = Desk::new(&test, "broken");
    broken.create(&json!({ "cron": "0 9 * * *", "timezone": "Mars/Olympus" }), &json!({})).await;
    broken.reaches(Phase::Error).await;
    let versions = versions(&test).await;

    // From the moment at which nothing is sent any more.
    eventually("the controller comes to rest", SOON, async || {
        let mark = testbed.audit().mark();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let sent = ours(testbed.audit().since(mark));
        if sent.is_empty() { Ok(()) } else { Err(format!("{sent:#?}")) }
    })
    .await;
    let mark = testbed.audit().mark();
    let minute = tokio::time::Instant::now() + std::time::Duration::from_secs(65);
    let mut heartbeats = 0;
    while tokio::time::Instant::now() < minute {
        for name in &names {
            heartbeat(&Desk::new(&test, name)).await;
            heartbeats += 1;
        }
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    }
    assert!(heartbeats >= 2 * names.len(), "{heartbeats}");
    testbed.audit().caught_up(&test.client).await;
    let sent = ours(testbed.audit().since(mark));
    assert!(sent.is_empty(), "{sent:#?}");
    assert_eq!(versions, self::versions(&test).await, "a status was written that did not change");

    let desk = Desk::new(&test, "desk-042");
    desk.edit(&json!({ "spec": { "schedule": { "enabled": false } } })).await;
    desk.reaches(Phase::Disabled).await;
    test.close().await;
}

/// What a kubelet writes into its Node every few minutes.
async fn heartbeat(desk: &Desk<'_>) {
    let now = jiff::Timestamp::now().to_string();
    let beat = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": now }] } });
    desk.nodes().patch_status(&desk.node_name(), &PatchParams::default(), &Patch::Strategic(&beat)).await.unwrap();
}

/// What the controller sent, whoever it said that it is. Watches are renewed every few minutes.
fn ours(entries: Entries) -> Entries {
    entries.filter(|it| it.user_agent.starts_with("5spot/") && it.verb != "watch")
}

async fn versions(test: &fivespot_testbed::TestNamespace) -> Vec<Option<String>> {
    let objects = test.api::<ScheduledMachine>().list(&ListParams::default()).await.unwrap();
    objects.items.into_iter().map(|it| it.metadata.resource_version).collect()
}

fn count(entries: &Entries) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    entries.0.iter().for_each(|it| *counts.entry(format!("{} {} {}", it.verb, it.target(), it.code)).or_default() += 1);
    counts
}
