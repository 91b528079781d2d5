//! One of two instances is killed just before a window opens for its objects.

use std::time::Duration;

use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::process::Signal;
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};

use crate::env::{CONCURRENT_WRITES, Env, mean, print, seconds};
use crate::fixtures::{Controller, scheduled_machine, sent_by_controller, wait_for, window};

/// Objects of the instance that is killed.
const OBJECTS: usize = 100;
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RUNS: usize = 3;

pub(crate) async fn measure() -> Value {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(Box::pin(measure_once()).await);
    }
    let [first, last] = [0, 1].map(|index| times.iter().map(|it| it[index]).collect::<Vec<f64>>());
    print(&format!("an instance is killed just before a window opens for {OBJECTS} of its objects"));
    print(&format!("  first Machine created after         {first:.1?} s (lease {} s)", LEASE_DURATION.as_secs()));
    print(&format!("  last Machine created after          {last:.1?} s, on average {:.1} s", mean(&last)));
    json!({ "objects": OBJECTS, "first": first, "last": last, "lease": LEASE_DURATION.as_secs() })
}

/// Seconds from the death of an instance until the other one has created the first and the last Machine that is due.
async fn measure_once() -> [f64; 2] {
    let env = Env::start("failover").await;
    let (first, _second) = (start(&env, "0").await, start(&env, "1").await);
    wait_until_each_has_a_shard(&env).await;
    let schedule = window(30, 3600);
    let opens: Timestamp = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    let of_first = |name: &String| fivespot_planner::shards::shard_of(&env.ns.name, name, 2) == 0;
    let names: Vec<String> = (0..).map(|it| format!("desk-{it:05}")).filter(of_first).take(OBJECTS).collect();
    stream::iter(&names)
        .for_each_concurrent(CONCURRENT_WRITES, async |name| {
            scheduled_machine(&env.ns, name).schedule(schedule.clone()).create().await;
        })
        .await;
    let wait = opens.duration_since(Timestamp::now()) - SignedDuration::from_millis(200);
    tokio::time::sleep(wait.try_into().unwrap()).await;
    let (mark, killed) = (env.mark(), Timestamp::now());
    first.signal(Signal::KILL);
    let created = || {
        let is_create = |it: &AuditEntry| it.verb == "create" && sent_by_controller(it);
        env.testbed.audit().since(mark).on("machines").succeeded().filter(is_create).0
    };
    // Reading the log is work as well.
    while created().len() < OBJECTS {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let after: Vec<f64> = created().iter().map(|it| seconds(it.at.duration_since(killed))).collect();
    [after.iter().copied().fold(f64::MAX, f64::min), after.iter().copied().fold(0.0, f64::max)]
}

async fn start(env: &Env, id: &str) -> Controller {
    let namespaces = ["--namespace", &env.ns.name, "--lease-namespace", "5spot-system"];
    let instance = ["--leader-election", "--instance-id", id, "--instance-count", "2"];
    let controller = Controller::start_with_args(&env.testbed, &[&namespaces[..], &instance].concat()).await;
    controller.wait_until_ready().await;
    controller
}

async fn wait_until_each_has_a_shard(env: &Env) {
    let leases: Api<Lease> = Api::namespaced(env.ns.client.clone(), "5spot-system");
    wait_for("each instance holds its shard", async || {
        let mut holders = Vec::new();
        for shard in 0..2 {
            let lease = leases.get_opt(&format!("5spot-shard-{shard}")).await.unwrap();
            holders.push(lease.and_then(|it| it.spec).and_then(|it| it.holder_identity).unwrap_or_default());
        }
        if holders[0].starts_with("0_") && holders[1].starts_with("1_") { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await;
}
