//! The windows of all objects open at the same time, and later close while a pod runs on each Node.

use std::time::Duration;

use fivespot_testbed::audit::{AuditEntry, AuditMark};
use fivespot_testbed::provider::Behaviour;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::env::{Cpu, Env, for_each, phase_series, print, requests_per_object, seconds};
use crate::fixtures::{BareClient, CONTROLLER_USER, Controller, TestMachine, never, scheduled_machine, window};

/// Enough to write all objects before the boundary.
fn seconds_until_boundary(objects: usize) -> i64 {
    20 + i64::try_from(objects).unwrap() / 40
}

pub(crate) async fn measure(objects: usize) -> Value {
    let bare = Box::pin(measure_bare_client(objects)).await;
    let controller = Box::pin(measure_controller(objects)).await;
    print(&format!("the windows of {objects} objects open, and close with a pod on each Node"));
    for (part, what) in [("open", "last Machine created"), ("close", "last Machine deleted")] {
        let [time, bare_time] = [&controller, &bare].map(|it| it[part]["seconds"].as_f64().unwrap());
        print(&format!("  {part}: first, median, {what:<21} {} s", controller[part]["quantiles"]));
        print(&format!("    bare client, same writes          {} s", bare[part]["quantiles"]));
        print(&format!("    ratio                             {:>8.2}", time / bare_time));
        print(&format!("    requests per object               {}", controller[part]["requestsPerObject"]));
        print(&format!("    CPU seconds                       {}", controller[part]["cpu"]));
        print(&format!("    CPU seconds with the bare client  {}", bare[part]["cpu"]));
    }
    json!({ "objects": objects, "controller": controller, "bare": bare })
}

async fn measure_controller(objects: usize) -> Value {
    let env = Env::start("boundary").await;
    let controller = env.start_controller().await;
    let schedule = window(seconds_until_boundary(objects), 24 * 3600);
    for_each(objects, async |name| {
        scheduled_machine(&env.ns, &name).schedule(schedule.clone()).long_timeouts().create().await;
    })
    .await;
    let open_at = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    let open = measure_boundary(&env, &controller, open_at, ("Active", "create"), objects).await;

    run_pods(&env, objects).await;
    wait_until_all_are_ready(&controller).await;
    env.wait_until_controller_is_quiet().await;
    let close_at = Timestamp::now() + SignedDuration::from_secs(seconds_until_boundary(objects));
    let close = json!({ "spec": { "schedule": { "overrides": [{
        "from": "2020-01-01T00:00:00Z", "until": close_at.to_string(), "active": true,
    }] } } });
    for_each(objects, async |name| TestMachine::new(&env.ns, &name).patch(&close).await).await;
    let close = measure_boundary(&env, &controller, close_at, ("Inactive", "delete"), objects).await;
    json!({ "open": open, "close": close })
}

/// Waits for the boundary and until all objects are in the phase; the last request about a Machine counts.
async fn measure_boundary(
    env: &Env,
    controller: &Controller,
    boundary: Timestamp,
    (phase, verb): (&str, &str),
    objects: usize,
) -> Value {
    let wait = boundary.duration_since(Timestamp::now());
    assert!(wait.is_positive(), "writing the objects took {wait} too long");
    tokio::time::sleep(wait.unsigned_abs()).await;
    let (mark, cpu) = (env.mark(), env.cpu(Some(controller)).await);
    let series = phase_series(controller, phase, boundary, objects).await;
    let cpu = env.cpu(Some(controller)).await.since(&cpu);
    let requests = env.controller_requests(mark).await;
    let mut figures = figures(&requests, verb, boundary);
    let requests: Vec<AuditEntry> = requests.into_iter().filter(|it| it.resource != "events").collect();
    figures["requestsPerObject"] = json!(requests_per_object(&requests, objects));
    figures["cpu"] = cpu;
    figures["series"] = json!(series);
    figures
}

/// When the first, the median and the last Machine was created or deleted.
fn figures(requests: &[AuditEntry], verb: &str, boundary: Timestamp) -> Value {
    let is_of_machine = |it: &&AuditEntry| it.target() == "machines" && it.verb == verb && it.succeeded();
    let mut times: Vec<f64> =
        requests.iter().filter(is_of_machine).map(|it| seconds(it.at.duration_since(boundary))).collect();
    times.sort_by(f64::total_cmp);
    let last = times[times.len() - 1];
    json!({ "seconds": last, "quantiles": [times[0], times[times.len() / 2], last] })
}

/// Nodes join, and a pod runs on each.
async fn run_pods(env: &Env, objects: usize) {
    let mark = env.mark();
    env.set_provider(Behaviour::default()).await;
    // Pods of Nodes that do not exist yet would be deleted.
    while env.testbed.audit().since(mark).on("nodes").succeeded().filter(|it| it.verb == "create").len() < objects {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for_each(objects, async |name| {
        TestMachine::new(&env.ns, &name).create_pod(&name).await;
    })
    .await;
}

async fn wait_until_all_are_ready(controller: &Controller) {
    let not_ready = async || {
        let metrics = controller.metrics().await;
        let values = metrics.lines().filter(|it| it.starts_with("fivespot_machines_not_ready{"));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum::<usize>()
    };
    while not_ready().await > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A client that sends the same writes. Machines are created for real, so that Cluster API has as much to do.
async fn measure_bare_client(objects: usize) -> Value {
    let env = Env::start("bare").await;
    let client = BareClient::start(&env.testbed, &env.ns).await;
    for_each(objects, async |name| {
        scheduled_machine(&env.ns, &name).schedule(never()).create().await;
    })
    .await;
    let (mark, start, cpu) = (env.mark(), Timestamp::now(), env.cpu(None).await);
    for_each(objects, async |name| client.activate(&name).await).await;
    let open = bare_figures(&env, (mark, start, &cpu), "create").await;

    run_pods(&env, objects).await;
    let (mark, start, cpu) = (env.mark(), Timestamp::now(), env.cpu(None).await);
    for_each(objects, async |name| client.close(&name).await).await;
    let close = bare_figures(&env, (mark, start, &cpu), "delete").await;
    json!({ "open": open, "close": close })
}

async fn bare_figures(env: &Env, (mark, start, cpu): (AuditMark, Timestamp, &Cpu), verb: &str) -> Value {
    let used = env.cpu(None).await.since(cpu);
    env.testbed.audit().caught_up(&env.ns.client).await;
    let requests = env.testbed.audit().since(mark).by(CONTROLLER_USER).0;
    let mut figures = figures(&requests, verb, start);
    figures["cpu"] = used;
    figures
}
