//! Two controllers that reconcile the same objects, as while an update replaces one by the other: the status depends on
//! the cluster's state only, so neither rewrites what the other has written.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::audit::AuditMark;
use fivespot_testbed::provider::{Behaviour, Step};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixtures::{
    Controller, TestMachine, assert_events_once, message_contains, messages, namespace_with_cluster, never,
    scheduled_machine, sent_by_controller, setup, testbed, wait_for,
};
use crate::kubeconfig_errors::write_kubeconfig;

/// A drain that has evicted one pod, and whose other pod a PodDisruptionBudget blocks.
async fn drain_blocked(sm: &TestMachine<'_>) {
    sm.create_pod("first").await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    wait_for("the first pod is evicted", async || sm.ns.api::<Pod>().get_opt("first").await.unwrap().is_none()).await;
    sm.wait_for_message(messages::ONE_OF_TWO_PODS).await;
}

/// A Machine that failed, and whose successor has to wait for minutes.
async fn fail_machine(sm: &TestMachine<'_>) {
    sm.wait_for_message(messages::RECREATED_AT).await;
    let retry_at = Timestamp::now() + SignedDuration::from_mins(4);
    let retry_at = retry_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let failure = json!({ "machineUID": "earlier", "reason": "NoPower", "count": 4, "retryAt": retry_at });
    sm.patch_status(&json!({ "status": { "machineFailure": failure } })).await;
}

/// The status writes of all controllers within a time, by object.
async fn status_writes(sm: &TestMachine<'_>, during: Duration) -> Vec<String> {
    let mark = testbed().await.audit().mark();
    tokio::time::sleep(during).await;
    status_writes_since(sm, mark).await
}

async fn status_writes_since(sm: &TestMachine<'_>, mark: AuditMark) -> Vec<String> {
    let audit = testbed().await.audit();
    audit.caught_up(&sm.ns.client).await;
    let writes = audit.since(mark).writes().on("scheduledmachines").in_namespace(&sm.ns.name);
    writes.filter(sent_by_controller).0.into_iter().map(|it| format!("{} {}", it.target(), it.name)).collect()
}

async fn wait_until_at_rest(sm: &TestMachine<'_>) {
    wait_for("the controller comes to rest", async || {
        let writes = status_writes(sm, Duration::from_secs(5)).await;
        if writes.is_empty() { Ok(()) } else { Err(format!("{} writes: {writes:?}", writes.len())) }
    })
    .await;
}

#[tokio::test]
async fn two_controllers_come_to_rest() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("two-controllers").await;
    let fail = Step::Fail { reason: "NoPower".to_owned(), message: "the plug is out".to_owned() };
    let provider = &testbed.fleet().await.provider;
    let failed = TestMachine::new(&ns, "failed");
    let behaviour = Behaviour { infrastructure: fail, ..Behaviour::default() };
    provider.behave_for(&ns.name, &failed.infrastructure_name(), behaviour);
    let first = Controller::start(testbed, &ns).await;
    let drained = scheduled_machine(&ns, "drained").long_timeouts().create_running().await;
    drain_blocked(&drained).await;
    scheduled_machine(&ns, "failed").create().await;
    let rejected = scheduled_machine(&ns, "rejected").infrastructure_kind("Unknown").create().await;
    rejected.wait_for_phase(Phase::Error).await;
    fail_machine(&failed).await;

    wait_until_at_rest(&drained).await;
    // From the start of the second one: later, writes that each other's writes cause would be rare.
    let mark = testbed.audit().mark();
    let second = Controller::start(testbed, &ns).await;
    second.wait_until_ready().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(status_writes_since(&drained, mark).await, Vec::<String>::new());
    let status = drained.status().await;
    assert!(message_contains(&status, messages::ONE_OF_TWO_PODS), "{status:#?}");
    let status = failed.status().await;
    assert!(message_contains(&status, messages::RECREATED_AT), "{status:#?}");
    drained.set_kill_switch(true).await;
    drained.wait_for_phase(Phase::Terminated).await;
    drop((first, second));
    ns.close().await;
}

#[tokio::test]
async fn two_controllers_come_to_rest_while_workload_cluster_is_unreachable() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("two-unreachable").await;
    let first = Controller::start(testbed, &ns).await;
    let drained = scheduled_machine(&ns, "drained").long_timeouts().create_running().await;
    let running = scheduled_machine(&ns, "running").create_running().await;
    drain_blocked(&drained).await;
    drop(first);
    let secret = ns.api::<Secret>().get("edge-kubeconfig").await.unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&secret.data.unwrap()["value"].0).unwrap();
    let valid = kubeconfig.to_string();
    // A server that accepts connections and never responds, so that a controller is connecting for a while.
    let silent_server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", silent_server.local_addr().unwrap());
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    write_kubeconfig(&ns, &kubeconfig.to_string()).await;
    let _second = Controller::start(testbed, &ns).await;
    for sm in [&running, &drained] {
        sm.wait_for_condition("MachineReady", ("Unknown", "WorkloadClusterUnreachable")).await;
    }
    // While it connects, it does not know what the other one knows, and reports nothing.
    let (_third, writes) =
        tokio::join!(Controller::start(testbed, &ns), status_writes(&drained, Duration::from_secs(30)));
    assert_eq!(writes, Vec::<String>::new());
    write_kubeconfig(&ns, &valid).await;
    drained.unblock_pod("web").await;
    drained.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn two_controllers_report_a_drain_timeout_once() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("two-timeouts").await;
    let _first = Controller::start(testbed, &ns).await;
    let second = Controller::start(testbed, &ns).await;
    second.wait_until_ready().await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().node_drain_timeout("4s").create_running().await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    assert_events_once(&sm, &["DrainTimedOut"]).await;
    ns.close().await;
}

/// As a second controller that observes something else for good, or a user who insists on another status. Without its
/// references, the object would be reconciled again immediately.
#[tokio::test]
async fn client_that_changes_the_status_back_causes_few_writes_and_reconciles() {
    let (ns, controller) = setup("status-fight").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    let fight = async {
        loop {
            sm.patch_status(&json!({ "status": { "message": "something else", "bootstrapRef": null } })).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let writes = tokio::select! {
        writes = status_writes(&sm, Duration::from_secs(20)) => writes,
        () = fight => unreachable!("the loop does not end"),
    };
    // Some without delay, then after 1, 2, 4 and 8 s.
    assert!((3..=12).contains(&writes.len()), "{} writes", writes.len());
    // The next report is postponed by more than ten seconds.
    let before = reconciles(&controller).await;
    sm.wait_for_message("Machine is healthy").await;
    let reconciles = reconciles(&controller).await - before;
    assert!(reconciles < 30, "{reconciles} reconciles while the report is postponed");
    ns.close().await;
}

/// How many reconciles have ended.
async fn reconciles(controller: &Controller) -> u64 {
    let metrics = controller.metrics().await;
    let counts = metrics.lines().filter(|line| line.starts_with("fivespot_reconciliations_total"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
