//! A window that opens for many at once: how long until the last has its Machine.
//!
//! Read off the API server's audit log, so that nobody who measures is in the way. A bare client that sends the same
//! writes, in the same order for each object and as many at a time, is measured in the same run.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on shall panic")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;

use fivespot_testbed::provider::kinds::{K0S_WORKER_CONFIG, REMOTE_MACHINE};
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{TestNamespace, Testbed};
use fixtures::{CONTROLLER, Controller, Desk, SOON, machine_resource, never, window};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

const OBJECTS: usize = 100;
/// How many writes are under way at once, as the controller has it by default.
const AT_ONCE: usize = 32;

#[tokio::main]
async fn main() {
    let testbed = fixtures::testbed().await;
    let ours = controller(testbed).await;
    let bare = bare_client(testbed).await;
    let mut out = std::io::stdout();
    writeln!(out, "a window opens for {OBJECTS} objects at once").unwrap();
    writeln!(out, "  first Machine created after  {:>7.3} s", seconds(ours[0])).unwrap();
    writeln!(out, "  median                       {:>7.3} s", seconds(ours[ours.len() / 2])).unwrap();
    let last = ours[ours.len() - 1];
    writeln!(out, "  last                         {:>7.3} s", seconds(last)).unwrap();
    writeln!(out, "  a bare client, same writes   {:>7.3} s", seconds(bare)).unwrap();
    writeln!(out, "  ratio                        {:>7.2}", seconds(last) / seconds(bare)).unwrap();
}

fn seconds(duration: SignedDuration) -> f64 {
    duration.as_secs_f64()
}

async fn ground(testbed: &Testbed, prefix: &str) -> TestNamespace {
    let test = testbed.namespace(prefix).await;
    testbed.cluster(&test, "edge").await.unwrap();
    // What Cluster API does with the machines would be measured too, and it is not ours.
    let slow = Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&test.name, slow);
    test
}

/// How long after the boundary each Machine was created, the shortest first.
async fn controller(testbed: &Testbed) -> Vec<SignedDuration> {
    let test = ground(testbed, "boundary").await;
    let controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    let names: Vec<String> = (0..OBJECTS).map(|it| format!("desk-{it:03}")).collect();
    let opens_in = 20;
    let schedule = window(opens_in, 3600);
    let boundary: Timestamp = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    stream::iter(&names)
        .for_each_concurrent(AT_ONCE, async |name| Desk::new(&test, name).create(&schedule, &json!({})).await)
        .await;
    let machines = async || {
        let audit = testbed.audit().entries().by(CONTROLLER).in_namespace(&test.name).on("machines").succeeded();
        audit.filter(|it| it.verb == "create")
    };
    eventually("every Machine is created", SOON, async || machines().await.len() == OBJECTS).await;
    let mut after: Vec<_> = machines().await.0.iter().map(|it| it.at.duration_since(boundary)).collect();
    after.sort();
    after
}

/// How long the same writes take when nothing but a client sends them.
async fn bare_client(testbed: &Testbed) -> SignedDuration {
    let test = ground(testbed, "bare").await;
    let names: Vec<String> = (0..OBJECTS).map(|it| format!("desk-{it:03}")).collect();
    stream::iter(&names)
        .for_each_concurrent(AT_ONCE, async |name| Desk::new(&test, name).create(&never(), &json!({})).await)
        .await;
    let begun = Timestamp::now();
    stream::iter(&names).for_each_concurrent(AT_ONCE, async |name| same_writes(&test, name).await).await;
    testbed.audit().caught_up(&test.client).await;
    let created = testbed.audit().entries().in_namespace(&test.name).on("machines").succeeded();
    let last = created.filter(|it| it.verb == "create").0.into_iter().map(|it| it.at).max().unwrap();
    last.duration_since(begun)
}

async fn same_writes(test: &TestNamespace, name: &str) {
    let desk = Desk::new(test, name);
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/bare"] } });
    desk.api().patch(name, &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();
    let status = |phase: &str| json!({ "status": { "phase": phase, "message": "a sentence of the usual length" } });
    desk.api().patch_status(name, &PatchParams::default(), &Patch::Merge(&status("Pending"))).await.unwrap();
    for (kind, suffix) in [(&K0S_WORKER_CONFIG, "bootstrap"), (&REMOTE_MACHINE, "infra")] {
        let resource = kind.api_resource();
        let object = DynamicObject::new(&format!("{name}-{suffix}"), &resource).data(json!({ "spec": {} }));
        test.dynamic_api(&resource).create(&PostParams::default(), &object).await.unwrap();
    }
    let reference = |kind: &str, group: &str, suffix: &str| json!({ "apiGroup": group, "kind": kind, "name": format!("{name}-{suffix}") });
    let machine = DynamicObject::new(&format!("{name}-machine"), &machine_resource()).data(json!({ "spec": {
        "clusterName": "edge",
        "bootstrap": { "configRef": reference("K0sWorkerConfig", K0S_WORKER_CONFIG.group, "bootstrap") },
        "infrastructureRef": reference("RemoteMachine", REMOTE_MACHINE.group, "infra"),
    } }));
    desk.machines().create(&PostParams::default(), &machine).await.unwrap();
    desk.api().patch_status(name, &PatchParams::default(), &Patch::Merge(&status("Active"))).await.unwrap();
}
