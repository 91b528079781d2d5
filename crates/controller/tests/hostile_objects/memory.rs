//! Resident memory: small per object, and independent of how large the objects are.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::provider::{Behaviour, Step};
use futures::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use crate::fixtures::{Controller, TestMachine, namespace_with_cluster, never, scheduled_machine, testbed, wait_for};
use crate::{raw, serial};

/// The memory limit of the controller's container, in MiB.
const MEMORY_LIMIT: f64 = 256.0;
const CONCURRENT: usize = 8;

/// etcd stores at most 1.5 MiB.
const LARGE_SPEC: usize = 1_200_000;
/// As many as the test can create quickly, or the number that the limit is promised for.
fn large_objects() -> usize {
    if fivespot_testbed::is_long() { 500 } else { 60 }
}

async fn for_each_object(count: usize, f: impl AsyncFn(String)) {
    stream::iter(0..count).for_each_concurrent(CONCURRENT, async |index| f(object_name(index)).await).await;
}

fn object_name(index: usize) -> String {
    format!("desk-{index:05}")
}

/// Creates an object with a large inline spec and with as much as the controller keeps of the rest.
async fn create_large(ns: &TestNamespace, name: &str) {
    let mut manifest = json!(scheduled_machine(ns, name).manifest());
    manifest["spec"]["bootstrapSpec"]["spec"] = json!({ "data": "x".repeat(LARGE_SPEC) });
    let annotations: Map<String, Value> =
        (0..28).map(|index| (format!("example.com/{index}"), "x".repeat(4096).into())).collect();
    manifest["spec"]["machineTemplate"] = json!({ "annotations": annotations });
    raw::create(ns, &manifest).await;
    let conditions: Vec<Value> = (0..14)
        .map(|index| {
            json!({
                "type": format!("Other{index}"),
                "status": "True",
                "reason": "Large",
                "message": "x".repeat(4096),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    raw::patch(ns, &format!("{name}/status"), &json!({ "status": { "conditions": conditions } })).await;
}

#[tokio::test]
async fn large_objects_stay_within_memory_limit() {
    let _serial = serial().await;
    let testbed = testbed().await;
    let (ns, count) = (testbed.namespace("large").await, large_objects());
    for_each_object(count, async |name| create_large(&ns, &name).await).await;

    // At start-up all objects are listed, and their status is written.
    let controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let listed = controller.resident_memory();
    let expected = format!("fivespot_machines_by_phase{{phase=\"Error\"}} {count}");
    wait_for("all objects are reported as invalid", async || {
        let metrics = controller.metrics().await;
        if metrics.contains(&expected) { Ok(()) } else { Err(metrics) }
    })
    .await;
    let reported = controller.resident_memory();
    // Edits arrive by the watch, and the status is written again.
    let priority = json!({ "spec": { "priority": 7 } });
    for_each_object(count, async |name| raw::patch(&ns, &name, &priority).await).await;
    for index in 0..count {
        raw::wait_until_invalid(&ns, &object_name(index)).await;
    }
    let edited = controller.resident_memory();
    println!("MiB (now, highest): listed {listed:.0?}, status written {reported:.0?}, edited {edited:.0?}");
    assert!(edited.1 < MEMORY_LIMIT * 0.8, "listed {listed:?}, status written {reported:?}, edited {edited:?} MiB");
    ns.close().await;
}

/// An inline spec within the limits that would be a hundred times as large if it were parsed.
fn many_values() -> Value {
    json!({ "a": vec![vec![json!({ "": 0 }); 1000]; 9] })
}

#[tokio::test]
async fn inline_specs_with_many_values_stay_within_memory_limit() {
    const OBJECTS: usize = 40;
    let _serial = serial().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("many-values").await;
    let behaviour = Behaviour { infrastructure: Step::Never, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&ns.name, behaviour);
    for_each_object(OBJECTS, async |name| {
        let mut manifest = json!(scheduled_machine(&ns, &name).manifest());
        manifest["spec"]["bootstrapSpec"]["spec"] = many_values();
        manifest["spec"]["infrastructureSpec"]["spec"] = many_values();
        raw::create(&ns, &manifest).await;
    })
    .await;
    let controller = Controller::start(testbed, &ns).await;
    for_each_object(OBJECTS, async |name| {
        TestMachine::new(&ns, &name).wait_for_phase(Phase::Active).await;
    })
    .await;
    let (now, highest) = controller.resident_memory();
    println!("{now:.0} MiB, at most {highest:.0}");
    assert!(highest < MEMORY_LIMIT * 0.4, "{highest} MiB");
    ns.close().await;
}

/// Objects at the first measurement.
const FEW: usize = 300;
/// Objects at the second measurement.
fn many() -> usize {
    if fivespot_testbed::is_long() { 10_000 } else { 1500 }
}
/// What 10,000 objects may use, in MiB.
const MEMORY_OF_10_000: f64 = 100.0;

#[tokio::test]
async fn memory_per_ordinary_object_is_small() {
    let _serial = serial().await;
    let testbed = testbed().await;
    let ns = testbed.namespace("ordinary").await;
    let mut measured = Vec::new();
    let many = many();
    for count in [FEW, many] {
        let first = if count == FEW { 0 } else { FEW };
        stream::iter(first..count)
            .for_each_concurrent(CONCURRENT, async |index| {
                scheduled_machine(&ns, &object_name(index)).schedule(never()).create().await;
            })
            .await;
        let controller = Controller::start(testbed, &ns).await;
        controller.wait_until_ready().await;
        for_each_object(count, async |name| {
            TestMachine::new(&ns, &name).wait_for_phase(Phase::Inactive).await;
        })
        .await;
        measured.push(controller.resident_memory().0);
    }
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let per_object = (measured[1] - measured[0]) / (many - FEW) as f64;
    let of_10_000 = measured[0] + per_object * 10_000.0;
    println!("{measured:.1?} MiB, {:.1} KiB per object, {of_10_000:.0} MiB with 10,000", per_object * 1024.0);
    assert!(of_10_000 < MEMORY_OF_10_000, "{measured:?}: {of_10_000:.0} MiB with 10,000 objects");
    ns.close().await;
}
