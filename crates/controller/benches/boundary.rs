//! The time from the opening of a window for many objects to the creation of the last Machine.
//!
//! Times come from the API server's audit log, so that the measurement sends no requests of its own. The same run measures
//! a bare client that sends the same writes, in the same order per object and with the same concurrency.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;

use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{TestNamespace, Testbed};
use fixtures::{
    CONTROLLER_USER, Controller, TestMachine, namespace_with_cluster, never, scheduled_machine, send_same_writes,
    wait_for, window,
};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const OBJECTS: usize = 100;
/// The controller's default for `--max-concurrent-writes`.
const CONCURRENT_WRITES: usize = 32;
/// Enough to create all objects before the window opens.
const SECONDS_UNTIL_OPEN: i64 = 20;

#[tokio::main]
async fn main() {
    let testbed = fixtures::testbed().await;
    let controller = measure_controller(testbed).await;
    let bare = measure_bare_client(testbed).await;
    let last = controller[controller.len() - 1];
    let mut out = std::io::stdout();
    writeln!(out, "a window opens for {OBJECTS} objects").unwrap();
    writeln!(out, "  first Machine created after  {:>7.3} s", controller[0].as_secs_f64()).unwrap();
    writeln!(out, "  median                       {:>7.3} s", controller[controller.len() / 2].as_secs_f64()).unwrap();
    writeln!(out, "  last                         {:>7.3} s", last.as_secs_f64()).unwrap();
    writeln!(out, "  bare client, same writes     {:>7.3} s", bare.as_secs_f64()).unwrap();
    writeln!(out, "  ratio                        {:>7.2}", last.as_secs_f64() / bare.as_secs_f64()).unwrap();
}

/// Creates a namespace in which the provider does nothing, so that the work of Cluster API is not measured.
async fn idle_namespace(testbed: &Testbed, prefix: &str) -> TestNamespace {
    let ns = namespace_with_cluster(prefix).await;
    let idle = Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&ns.name, idle);
    ns
}

fn names() -> Vec<String> {
    (0..OBJECTS).map(|it| format!("desk-{it:03}")).collect()
}

async fn create_all(ns: &TestNamespace, schedule: &Value) {
    stream::iter(names())
        .for_each_concurrent(CONCURRENT_WRITES, async |name| {
            scheduled_machine(ns, &name).schedule(schedule.clone()).create().await;
        })
        .await;
}

/// The delay of each Machine after the window opens, in ascending order.
async fn measure_controller(testbed: &Testbed) -> Vec<SignedDuration> {
    let ns = idle_namespace(testbed, "boundary").await;
    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let schedule = window(SECONDS_UNTIL_OPEN, 3600);
    let boundary: Timestamp = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    create_all(&ns, &schedule).await;
    let created = || {
        let audit = testbed.audit().entries().by(CONTROLLER_USER).in_namespace(&ns.name).on("machines").succeeded();
        audit.filter(|it| it.verb == "create")
    };
    wait_for("all Machines are created", async || created().len() == OBJECTS).await;
    let mut delays: Vec<_> = created().0.iter().map(|it| it.at.duration_since(boundary)).collect();
    delays.sort();
    delays
}

/// The time until the last Machine when a client does nothing but send the same writes.
async fn measure_bare_client(testbed: &Testbed) -> SignedDuration {
    let ns = idle_namespace(testbed, "bare").await;
    create_all(&ns, &never()).await;
    let start = Timestamp::now();
    stream::iter(names())
        .for_each_concurrent(CONCURRENT_WRITES, async |name| send_same_writes(&TestMachine::new(&ns, &name)).await)
        .await;
    testbed.audit().caught_up(&ns.client).await;
    let created = testbed.audit().entries().in_namespace(&ns.name).on("machines").succeeded();
    let last = created.filter(|it| it.verb == "create").0.into_iter().map(|it| it.at).max().unwrap();
    last.duration_since(start)
}
