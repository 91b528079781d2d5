//! Two controllers that reconcile the same objects, as while an update replaces one by the other: the status depends on
//! the cluster's state only, so neither rewrites what the other has written.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::provider::{Behaviour, Step};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

use crate::fixtures::{
    Controller, TestMachine, message_contains, messages, namespace_with_cluster, never, scheduled_machine,
    sent_by_controller, testbed, wait_for,
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
    let failure = json!({ "retryAt": retry_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "count": 4 });
    sm.patch_status(&json!({ "status": { "machineFailure": failure } })).await;
}

/// The status writes of all controllers within a time, by object.
async fn status_writes(sm: &TestMachine<'_>, during: Duration) -> Vec<String> {
    let audit = testbed().await.audit();
    let mark = audit.mark();
    tokio::time::sleep(during).await;
    audit.caught_up(&sm.ns.client).await;
    let writes = audit.since(mark).writes().on("scheduledmachines").in_namespace(&sm.ns.name);
    writes.filter(sent_by_controller).0.into_iter().map(|it| format!("{} {}", it.target(), it.name)).collect()
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
    let _first = Controller::start(testbed, &ns).await;
    let drained = scheduled_machine(&ns, "drained").long_timeouts().create_running().await;
    drain_blocked(&drained).await;
    scheduled_machine(&ns, "failed").create().await;
    let rejected = scheduled_machine(&ns, "rejected").infrastructure_kind("Unknown").create().await;
    rejected.wait_for_phase(Phase::Error).await;
    fail_machine(&failed).await;

    let second = Controller::start(testbed, &ns).await;
    second.wait_until_ready().await;
    wait_for("the controllers come to rest", async || {
        let writes = status_writes(&drained, Duration::from_secs(5)).await;
        if writes.is_empty() { Ok(()) } else { Err(format!("{} writes: {writes:?}", writes.len())) }
    })
    .await;
    assert_eq!(status_writes(&drained, Duration::from_secs(20)).await, Vec::<String>::new());
    let status = drained.status().await;
    assert!(message_contains(&status, messages::ONE_OF_TWO_PODS), "{status:#?}");
    assert!(message_contains(&failed.status().await, messages::RECREATED_AT), "{:#?}", failed.status().await);

    // The workload cluster becomes unreachable for a machine that runs and for one that is being drained.
    let running = scheduled_machine(&ns, "running").create_running().await;
    let secret = ns.api::<Secret>().get("edge-kubeconfig").await.unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&secret.data.unwrap()["value"].0).unwrap();
    let valid = kubeconfig.to_string();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    write_kubeconfig(&ns, &kubeconfig.to_string()).await;
    let third = Controller::start(testbed, &ns).await;
    drop(second);
    let fourth = Controller::start(testbed, &ns).await;
    third.wait_until_ready().await;
    fourth.wait_until_ready().await;
    drop(_first);
    for sm in [&running, &drained] {
        sm.wait_for_condition("MachineReady", ("Unknown", "WorkloadClusterUnreachable")).await;
    }
    wait_for("the controllers come to rest", async || {
        let writes = status_writes(&drained, Duration::from_secs(5)).await;
        if writes.is_empty() { Ok(()) } else { Err(format!("{} writes: {writes:?}", writes.len())) }
    })
    .await;
    assert_eq!(status_writes(&drained, Duration::from_secs(20)).await, Vec::<String>::new());
    write_kubeconfig(&ns, &valid).await;
    drained.unblock_pod("web").await;
    drained.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}
