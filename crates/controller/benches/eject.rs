//! An owner who wants the machine back: how long from the request on the Node to the Machine's deletion.
//!
//! Read off the API server's audit log: from the moment at which the annotations are stored to the moment at which the
//! request to delete the Machine arrives. A bare client that stores the intent, marks and deletes is measured beside it.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on shall panic")]

#[path = "../tests/fixtures/mod.rs"]
mod fixtures;

use std::io::Write as _;
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::audit::AuditMark;
use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::{TestNamespace, Testbed};
use fixtures::{Controller, Desk, always};
use jiff::SignedDuration;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const MACHINES: usize = 100;
/// What was begun before has come to rest by then.
const BETWEEN_TWO: Duration = Duration::from_millis(500);
/// Nothing was asked for this long: all has come to rest.
const QUIET: Duration = Duration::from_secs(6);
const REQUESTED: &str = "5spot.finos.org/reclaim-requested";

#[tokio::main]
async fn main() {
    let testbed = fixtures::testbed().await;
    let test = testbed.namespace("eject").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    let ours = measure(testbed, &test, "ours", &json!({ "killIfCommands": ["java"] })).await;
    drop(controller);

    // The machines of the bare client are made by a controller that is gone when they are measured.
    let controller = Controller::start_in(testbed, &test).await;
    let names = names("bare");
    lend(&test, &names, &json!({})).await;
    drop(controller);
    is_quiet(testbed).await;
    let mut bare = Vec::new();
    for name in &names {
        bare.push(by_a_bare_client(testbed, &Desk::new(&test, name)).await);
    }
    let mut out = std::io::stdout();
    writeln!(out, "from the request on the Node to the deletion of the Machine, {MACHINES} times").unwrap();
    for (who, mut times) in [("5spot", ours), ("a bare client, same writes", bare)] {
        times.sort();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1].as_secs_f64() * 1000.0;
        let (p50, p99, worst) = (at(50), at(99), at(100));
        writeln!(out, "  {who:<28} p50 {p50:>7.1} ms   p99 {p99:>7.1} ms   worst {worst:>7.1} ms").unwrap();
    }
}

fn names(prefix: &str) -> Vec<String> {
    (0..MACHINES).map(|it| format!("{prefix}-{it:02}")).collect()
}

async fn lend(test: &TestNamespace, names: &[String], more: &Value) {
    for name in names {
        Desk::new(test, name).create(&always(), more).await;
    }
    for name in names {
        Desk::new(test, name).runs().await;
    }
}

/// Waits until the control plane is done with the new kinds and machines: its garbage collector looks at all of them
/// again for half a minute.
async fn is_quiet(testbed: &Testbed) {
    loop {
        let mark = testbed.audit().mark();
        tokio::time::sleep(QUIET).await;
        let asked = testbed.audit().since(mark).filter(|it| !matches!(it.resource.as_str(), "leases" | "events"));
        if asked.filter(|it| it.verb != "watch" && !it.resource.is_empty()).0.len() < 5 {
            break;
        }
    }
}

async fn measure(testbed: &Testbed, test: &TestNamespace, prefix: &str, more: &Value) -> Vec<SignedDuration> {
    let names = names(prefix);
    lend(test, &names, more).await;
    is_quiet(testbed).await;
    let mut times = Vec::new();
    for name in &names {
        let desk = Desk::new(test, name);
        tokio::time::sleep(BETWEEN_TWO).await;
        let mark = testbed.audit().mark();
        ask(&desk).await;
        // Nobody who waits for it is in the way.
        tokio::time::sleep(BETWEEN_TWO).await;
        desk.reaches(Phase::Disabled).await;
        times.push(from_request_to_deletion(testbed, &desk, mark).await);
    }
    times
}

/// Writes what the agent writes.
async fn ask(desk: &Desk<'_>) {
    let patch = json!({ "metadata": { "annotations": { REQUESTED: "true" } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Read when all is over, so that nobody who measures is in the way.
async fn from_request_to_deletion(testbed: &Testbed, desk: &Desk<'_>, mark: AuditMark) -> SignedDuration {
    testbed.audit().caught_up(&desk.test.client).await;
    let writes = testbed.audit().since(mark).writes().0;
    let (node, machine) = (desk.node_name(), format!("{}-machine", desk.name));
    let asked = writes.iter().find(|it| it.name == node && it.resource == "nodes" && it.user == ADMIN).unwrap();
    let deleted = writes.iter().find(|it| it.name == machine && it.verb == "delete").unwrap();
    deleted.received.duration_since(asked.at)
}

/// The same writes, by a client that has nothing else to do.
async fn by_a_bare_client(testbed: &Testbed, desk: &Desk<'_>) -> SignedDuration {
    tokio::time::sleep(BETWEEN_TWO).await;
    let mark = testbed.audit().mark();
    ask(desk).await;
    let status = json!({ "status": { "phase": "EmergencyRemove", "message": "a sentence of the usual length" } });
    desk.api().patch_status(desk.name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let machine = format!("{}-machine", desk.name);
    let marks = json!({ "metadata": { "annotations": { "machine.cluster.x-k8s.io/exclude-node-draining": "true" } } });
    desk.machines().patch(&machine, &PatchParams::default(), &Patch::Merge(&marks)).await.unwrap();
    desk.machines().delete(&machine, &DeleteParams::default()).await.unwrap();
    from_request_to_deletion(testbed, desk, mark).await
}
