//! The time from a reclaim request on the Node to the deletion of the Machine.
//!
//! Times come from the API server's audit log: from the moment the annotations are stored to the moment the delete request
//! of the Machine arrives. The same run measures a bare client that stores the intent, annotates the Machine and deletes
//! it.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::Testbed;
use fivespot_testbed::audit::AuditMark;
use fivespot_testbed::control_plane::ADMIN;
use fixtures::{
    Controller, TestMachine, namespace_with_cluster, remove_same_writes, request_reclaim, scheduled_machine,
};
use jiff::SignedDuration;

const MACHINES: usize = 100;
/// Long enough for the previous removal to settle.
const INTERVAL: Duration = Duration::from_millis(500);
/// The control plane counts as idle after this long with hardly any request.
const QUIET_PERIOD: Duration = Duration::from_secs(6);

#[tokio::main]
async fn main() {
    let testbed = fixtures::testbed().await;
    let ns = namespace_with_cluster("force-removal").await;

    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let names = names("controller");
    for name in &names {
        scheduled_machine(&ns, name).kill_if_command("java").create().await;
    }
    let machines = wait_until_all_run(&ns, &names).await;
    wait_until_idle(testbed).await;
    let mut with_controller = Vec::new();
    for sm in &machines {
        with_controller.push(measure_controller(testbed, sm).await);
    }
    drop(controller);

    // Another controller creates the machines of the bare client, and is stopped before they are measured.
    let controller = Controller::start(testbed, &ns).await;
    let names = self::names("bare");
    for name in &names {
        scheduled_machine(&ns, name).create().await;
    }
    let machines = wait_until_all_run(&ns, &names).await;
    drop(controller);
    wait_until_idle(testbed).await;
    let mut with_bare_client = Vec::new();
    for sm in &machines {
        with_bare_client.push(measure_bare_client(testbed, sm).await);
    }

    let mut out = std::io::stdout();
    writeln!(out, "from the reclaim request to the deletion of the Machine, {MACHINES} times").unwrap();
    for (client, mut times) in [("5spot", with_controller), ("bare client, same writes", with_bare_client)] {
        times.sort();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1].as_secs_f64() * 1000.0;
        let (p50, p99, max) = (at(50), at(99), at(100));
        writeln!(out, "  {client:<28} p50 {p50:>7.1} ms   p99 {p99:>7.1} ms   max {max:>7.1} ms").unwrap();
    }
}

fn names(prefix: &str) -> Vec<String> {
    (0..MACHINES).map(|it| format!("{prefix}-{it:02}")).collect()
}

async fn wait_until_all_run<'a>(ns: &'a fivespot_testbed::TestNamespace, names: &[String]) -> Vec<TestMachine<'a>> {
    let machines: Vec<_> = names.iter().map(|name| TestMachine::new(ns, name)).collect();
    for sm in &machines {
        sm.wait_until_running().await;
    }
    machines
}

/// Waits until the control plane has processed the new kinds and machines: its garbage collector syncs for half a minute.
async fn wait_until_idle(testbed: &Testbed) {
    loop {
        let mark = testbed.audit().mark();
        tokio::time::sleep(QUIET_PERIOD).await;
        let requests = testbed.audit().since(mark).filter(|it| !matches!(it.resource.as_str(), "leases" | "events"));
        if requests.filter(|it| it.verb != "watch" && !it.resource.is_empty()).len() < 5 {
            break;
        }
    }
}

async fn measure_controller(testbed: &Testbed, sm: &TestMachine<'_>) -> SignedDuration {
    tokio::time::sleep(INTERVAL).await;
    let mark = testbed.audit().mark();
    request_reclaim(sm).await;
    // Send no request during the measurement.
    tokio::time::sleep(INTERVAL).await;
    sm.wait_for_phase(Phase::Disabled).await;
    request_to_deletion(testbed, sm, mark).await
}

/// Sends the same writes from a client without other work.
async fn measure_bare_client(testbed: &Testbed, sm: &TestMachine<'_>) -> SignedDuration {
    tokio::time::sleep(INTERVAL).await;
    let mark = testbed.audit().mark();
    request_reclaim(sm).await;
    remove_same_writes(sm).await;
    request_to_deletion(testbed, sm, mark).await
}

/// Reads the duration from the audit log.
async fn request_to_deletion(testbed: &Testbed, sm: &TestMachine<'_>, mark: AuditMark) -> SignedDuration {
    testbed.audit().caught_up(&sm.ns.client).await;
    let writes = testbed.audit().since(mark).writes().0;
    let (node, machine) = (sm.node_name(), sm.machine_name());
    let request = writes.iter().find(|it| it.name == node && it.resource == "nodes" && it.user == ADMIN).unwrap();
    let deletion = writes.iter().find(|it| it.name == machine && it.verb == "delete").unwrap();
    deletion.received.duration_since(request.at)
}
