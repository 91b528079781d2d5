//! The time from a reclaim request on the Node to the deletion of the Machine, while a window opens for many objects.
//!
//! Times come from the API server's audit log, as in the benchmark `force_removal`. The same run measures the same
//! controller while it has no other work, and a bare client that sends the same writes in turn with the controller, under
//! the same load: what the bare client needs longer is not the controller's.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{TestNamespace, Testbed};
use fixtures::{
    CONTROLLER_USER, Controller, TestMachine, agent_rollout, namespace_with_cluster, remove_same_writes,
    request_reclaim, scheduled_machine, wait_for, window,
};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};

const TENANTS: usize = 10;
const CLUSTERS_PER_TENANT: usize = 10;
const OBJECTS_PER_CLUSTER: usize = 50;
const RECLAIMS: usize = 40;
const CONCURRENT_CREATES: usize = 32;
/// Longer than it takes to create all objects.
const SECONDS_UNTIL_OPEN: i64 = 240;
/// Between two reclaims.
const INTERVAL: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() {
    let testbed = fixtures::testbed().await;
    let owners = namespace_with_cluster("owners").await;
    let _controller = Controller::start_with_args(testbed, &[]).await;
    let idle = lend(&owners, "idle").await;
    let busy = lend(&owners, "busy").await;
    let [idle_bare, busy_bare] = [lend(&owners, "bare-idle").await, lend(&owners, "bare-busy").await];
    // The controller leaves their Machines to the bare client.
    for sm in idle_bare.iter().chain(&busy_bare) {
        sm.set_enabled(false).await;
    }
    reclaim_all(&idle, &idle_bare).await;
    let tenants = create_tenants(testbed).await;
    let opens = create_objects(&tenants).await;

    let wait = opens.duration_since(Timestamp::now());
    assert!(wait.is_positive(), "creating the objects took {wait} too long");
    tokio::time::sleep(wait.unsigned_abs()).await;
    reclaim_all(&busy, &busy_bare).await;
    let created = created_machines(testbed, &tenants);
    testbed.audit().caught_up(&owners.client).await;

    let mut out = std::io::stdout();
    let objects = TENANTS * CLUSTERS_PER_TENANT * OBJECTS_PER_CLUSTER;
    writeln!(out, "from the reclaim request to the deletion of the Machine, {RECLAIMS} times").unwrap();
    let writes = testbed.audit().entries().writes().0;
    let [idle, busy, idle_bare, busy_bare] =
        [&idle, &busy, &idle_bare, &busy_bare].map(|machines| times(&writes, machines));
    for (name, times) in [
        ("idle controller", &idle),
        ("bare client", &idle_bare),
        ("while windows open", &busy),
        ("bare client", &busy_bare),
    ] {
        let (p50, p99, max) = (at(times, 50), at(times, 99), at(times, 100));
        writeln!(out, "  {name:<28} p50 {p50:>7.1} ms   p99 {p99:>7.1} ms   max {max:>7.1} ms").unwrap();
    }
    writeln!(out, "  p99, ratio to idle           {:>7.2}", at(&busy, 99) / at(&idle, 99)).unwrap();
    writeln!(out, "  p99, of the bare client      {:>7.2}", at(&busy_bare, 99) / at(&idle_bare, 99)).unwrap();
    writeln!(out, "  Machines created until then  {created:>7} of {objects}").unwrap();
}

/// Machines with a Node and an agent.
async fn lend<'a>(ns: &'a TestNamespace, prefix: &str) -> Vec<TestMachine<'a>> {
    let names: Vec<String> = (0..RECLAIMS).map(|it| format!("{prefix}-{it:02}")).collect();
    for name in &names {
        scheduled_machine(ns, name).kill_if_command("java").create().await;
    }
    let machines: Vec<_> = names.iter().map(|name| TestMachine::new(ns, name)).collect();
    for sm in &machines {
        sm.wait_until_running().await;
        wait_for("the agent is rolled out", async || matches!(agent_rollout(sm, &ns.client).await, (true, Some(_))))
            .await;
    }
    machines
}

async fn reclaim_all(machines: &[TestMachine<'_>], bare: &[TestMachine<'_>]) {
    for (sm, bare) in machines.iter().zip(bare) {
        tokio::time::sleep(INTERVAL).await;
        request_reclaim(sm).await;
        tokio::time::sleep(INTERVAL).await;
        request_reclaim(bare).await;
        remove_same_writes(bare).await;
    }
    for sm in machines {
        sm.wait_for_phase(Phase::Disabled).await;
    }
}

/// Namespaces in which the provider does nothing, with their Clusters.
async fn create_tenants(testbed: &Testbed) -> Vec<TestNamespace> {
    let idle = Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..Behaviour::default() };
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        let ns = testbed.namespace("tenant").await;
        testbed.fleet().await.provider.behave_in(&ns.name, idle.clone());
        for cluster in 0..CLUSTERS_PER_TENANT {
            testbed.cluster(&ns, &format!("edge-{cluster}")).await.unwrap();
        }
        tenants.push(ns);
    }
    tenants
}

/// Creates objects whose windows open at the returned time.
async fn create_objects(tenants: &[TestNamespace]) -> Timestamp {
    let schedule = window(SECONDS_UNTIL_OPEN, 3600);
    let all =
        (0..CLUSTERS_PER_TENANT * OBJECTS_PER_CLUSTER).flat_map(|number| tenants.iter().map(move |ns| (ns, number)));
    stream::iter(all)
        .for_each_concurrent(CONCURRENT_CREATES, async |(ns, number)| {
            let machine = scheduled_machine(ns, &format!("desk-{number:04}")).schedule(schedule.clone());
            machine.cluster(&format!("edge-{}", number % CLUSTERS_PER_TENANT)).create().await;
        })
        .await;
    schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap()
}

fn created_machines(testbed: &Testbed, tenants: &[TestNamespace]) -> usize {
    let writes = testbed.audit().entries().by(CONTROLLER_USER).on("machines").succeeded();
    writes.filter(|it| it.verb == "create" && tenants.iter().any(|ns| ns.name == it.namespace)).len()
}

/// Reads the durations from the audit log, in ascending order.
fn times(writes: &[AuditEntry], machines: &[TestMachine<'_>]) -> Vec<SignedDuration> {
    let mut times: Vec<_> = machines
        .iter()
        .map(|sm| {
            let (node, machine) = (sm.node_name(), sm.machine_name());
            let request =
                writes.iter().find(|it| it.name == node && it.resource == "nodes" && it.user == ADMIN).unwrap();
            let deletion = writes.iter().find(|it| it.name == machine && it.verb == "delete").unwrap();
            deletion.received.duration_since(request.at)
        })
        .collect();
    times.sort();
    times
}

fn at(times: &[SignedDuration], percent: usize) -> f64 {
    times[(times.len() * percent).div_ceil(100) - 1].as_secs_f64() * 1000.0
}
