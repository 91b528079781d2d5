//! Many objects: from their creation to phase Active, a quiet minute, memory, and the failure of an instance.
//!
//! `cargo bench -p fivespot-controller --bench fleet -- 1000 10000`. Times and counts come from the audit log and from the
//! metrics of the controller, so that the measurement adds no load: listing 10,000 objects would be one. The same run
//! measures a bare client that creates the same objects and sends the same writes.
//!
//! Prints a table, and writes the figures to `target/bench/fleet.json`.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use fivespot_testbed::audit::{AuditEntry, AuditMark};
use fivespot_testbed::process::Signal;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{TestNamespace, Testbed};
use fixtures::{
    Controller, namespace_with_cluster, scheduled_machine, send_same_writes, sent_by_controller, wait_for, window,
};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};

const DEFAULT_SIZES: [usize; 2] = [1000, 10_000];
/// The controller's default for `--max-concurrent-writes`.
const CONCURRENT_WRITES: usize = 32;
/// Objects of the instance that is killed.
const FAILOVER_OBJECTS: usize = 100;
const LEASE_DURATION: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() {
    let sizes: Vec<usize> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let sizes = if sizes.is_empty() { DEFAULT_SIZES.to_vec() } else { sizes };
    let testbed = fixtures::testbed().await;
    let mut runs = Vec::new();
    for size in sizes {
        runs.push(measure(testbed, size).await);
    }
    let failover = measure_failover(testbed).await;
    let mut out = std::io::stdout();
    writeln!(out, "after an instance is killed just before a window opens for {FAILOVER_OBJECTS} of its objects")
        .unwrap();
    writeln!(out, "  last Machine created after          {failover:>8.1} s (lease {} s)", LEASE_DURATION.as_secs())
        .unwrap();
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&target).unwrap();
    let figures = json!({ "runs": runs, "failover": { "seconds": failover, "lease": LEASE_DURATION.as_secs() } });
    std::fs::write(target.join("fleet.json"), serde_json::to_string_pretty(&figures).unwrap()).unwrap();
}

/// Creates a namespace in which the provider does nothing, so that the work of Cluster API is small.
async fn idle_namespace(testbed: &Testbed, prefix: &str) -> TestNamespace {
    let ns = namespace_with_cluster(prefix).await;
    let idle = Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&ns.name, idle);
    ns
}

async fn for_each(count: usize, step: impl AsyncFn(String)) {
    let names = (0..count).map(|it| format!("desk-{it:05}"));
    stream::iter(names).for_each_concurrent(CONCURRENT_WRITES, async |name| step(name).await).await;
}

async fn measure(testbed: &Testbed, objects: usize) -> Value {
    // Before and after, because the objects of each measurement remain and slow down the next one.
    let before = measure_bare_client(testbed, objects).await;
    let ns = idle_namespace(testbed, "fleet").await;
    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let (start, mark) = (Timestamp::now(), testbed.audit().mark());
    let create = for_each(objects, async |name| {
        scheduled_machine(&ns, &name).create().await;
    });
    let (series, ()) = tokio::join!(active_series(&controller, start, objects), create);
    let requests = requests_since(testbed, &ns, mark).await;
    let is_status = |it: &&AuditEntry| it.target() == "scheduledmachines/status";
    let last = requests.iter().filter(is_status).map(|it| it.at).max().unwrap();
    let seconds = last.duration_since(start).as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let per_object = requests.iter().filter(|it| it.resource != "events").count() as f64 / objects as f64;
    let events = wait_until_quiet(testbed, &ns).await.duration_since(last).as_secs_f64();
    let mark = testbed.audit().mark();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let quiet = requests_since(testbed, &ns, mark).await.len();
    let (memory, highest) = controller.resident_memory();
    drop(controller);
    let after = measure_bare_client(testbed, objects).await;
    let bare = f64::midpoint(before, after);

    let mut out = std::io::stdout();
    writeln!(out, "{objects} objects").unwrap();
    writeln!(out, "  from the first creation to the last Active {seconds:>8.1} s").unwrap();
    writeln!(out, "  bare client, same writes            {bare:>8.1} s ({before:.1} before, {after:.1} after)")
        .unwrap();
    writeln!(out, "  ratio                               {:>8.2}", seconds / bare).unwrap();
    writeln!(out, "  requests per object, Events aside   {per_object:>8.2}").unwrap();
    writeln!(out, "  last Event after the last Active    {events:>8.1} s").unwrap();
    writeln!(out, "  requests in a quiet minute          {quiet:>8}").unwrap();
    writeln!(out, "  memory, and the highest             {memory:>8.1} MiB, {highest:.1} MiB").unwrap();
    json!({
        "objects": objects, "seconds": seconds, "bare": [before, after], "requestsPerObject": per_object, "lastEvent": events,
        "quietMinute": quiet, "memory": memory, "highestMemory": highest, "active": series,
    })
}

/// Seconds and the number of active objects, until all are.
async fn active_series(controller: &Controller, start: Timestamp, objects: usize) -> Vec<(f64, usize)> {
    let mut series = Vec::new();
    loop {
        let active = controller.metric("fivespot_machines_by_phase{phase=\"Active\"}").await;
        series.push((Timestamp::now().duration_since(start).as_secs_f64(), active));
        if active >= objects {
            return series;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn requests_since(testbed: &Testbed, ns: &TestNamespace, mark: AuditMark) -> Vec<AuditEntry> {
    testbed.audit().caught_up(&ns.client).await;
    let is_of_namespace = |it: &AuditEntry| it.namespace == ns.name && it.verb != "watch" && !is_version_check(it);
    testbed.audit().since(mark).filter(sent_by_controller).filter(is_of_namespace).0
}

/// Whether a request only checks the version from which a watch is continued.
fn is_version_check(entry: &AuditEntry) -> bool {
    entry.uri.ends_with("&resourceVersionMatch=NotOlderThan")
}

/// Waits until the controller sends nothing for five seconds, and returns the time of its last request.
async fn wait_until_quiet(testbed: &Testbed, ns: &TestNamespace) -> Timestamp {
    let mut last = Timestamp::now();
    loop {
        let mark = testbed.audit().mark();
        tokio::time::sleep(Duration::from_secs(5)).await;
        match requests_since(testbed, ns, mark).await.iter().map(|it| it.at).max() {
            Some(at) => last = at,
            None => return last,
        }
    }
}

/// The time in which a client creates the same objects and sends the same writes about each.
async fn measure_bare_client(testbed: &Testbed, objects: usize) -> f64 {
    let ns = idle_namespace(testbed, "bare").await;
    let start = Timestamp::now();
    for_each(objects, async |name| {
        send_same_writes(&scheduled_machine(&ns, &name).create().await).await;
    })
    .await;
    Timestamp::now().duration_since(start).as_secs_f64()
}

/// Seconds from the death of an instance until the other one has created all Machines that are due.
async fn measure_failover(testbed: &Testbed) -> f64 {
    let ns = idle_namespace(testbed, "failover").await;
    let args = |id: &str| {
        ["--namespace", &ns.name, "--leader-election", "--instance-id", id, "--instance-count", "2"].map(str::to_owned)
    };
    let start = async |id: &str| {
        let args = args(id);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let controller =
            Controller::start_with_args(testbed, &[&args[..], &["--lease-namespace", "5spot-system"]].concat()).await;
        controller.wait_until_ready().await;
        controller
    };
    let (first, _second) = (start("0").await, start("1").await);
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), "5spot-system");
    wait_for("each instance holds its shard", async || {
        let mut holders = Vec::new();
        for shard in 0..2 {
            let lease = leases.get_opt(&format!("5spot-shard-{shard}")).await.unwrap();
            holders.push(lease.and_then(|it| it.spec).and_then(|it| it.holder_identity).unwrap_or_default());
        }
        if holders[0].starts_with("0_") && holders[1].starts_with("1_") { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await;
    let schedule = window(30, 3600);
    let opens: Timestamp = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    let of_first = |name: &String| fivespot_planner::shards::shard_of(&ns.name, name, 2) == 0;
    let names: Vec<String> = (0..).map(|it| format!("desk-{it:05}")).filter(of_first).take(FAILOVER_OBJECTS).collect();
    stream::iter(&names)
        .for_each_concurrent(CONCURRENT_WRITES, async |name| {
            scheduled_machine(&ns, name).schedule(schedule.clone()).create().await;
        })
        .await;
    let wait = opens.duration_since(Timestamp::now()) - SignedDuration::from_millis(200);
    tokio::time::sleep(wait.try_into().unwrap()).await;
    let killed = Timestamp::now();
    first.signal(Signal::KILL);
    let created = || {
        let audit = testbed.audit().entries().in_namespace(&ns.name).on("machines").succeeded();
        audit.filter(sent_by_controller).filter(|it| it.verb == "create").0
    };
    wait_for("all Machines are created", async || created().len() == FAILOVER_OBJECTS).await;
    created().iter().map(|it| it.at).max().unwrap().duration_since(killed).as_secs_f64()
}
