//! Crash safety: the controller is killed after each single write of each flow, or loses the response to it, and still
//! ends in the same state.
//!
//! An uninterrupted run yields the writes of a flow, from the API server's audit log. For each of them a new object goes
//! through the same flow, and the process is killed after the API server has stored that write and before it receives
//! the response. A new process has to complete the flow.
#![allow(clippy::explicit_write, reason = "the test harness captures print macros of passing tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

mod env;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod flow;

use std::time::Duration;

use env::CrashEnv;
use fivespot_api::Phase;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::process::Signal;
use fivespot_testbed::provider::kinds::K0SMOTRON_WORKER_CONFIG;
use fixtures::{Endpoint, scheduled_machine, sent_by_controller, wait_for};
use flow::Flow;
use serde_json::json;

#[tokio::test]
async fn activation_survives_kill_after_each_write() {
    CrashEnv::new(Flow::Activation).await.kill_after_each_write().await;
}

#[tokio::test]
async fn reopening_survives_kill_after_each_write() {
    CrashEnv::new(Flow::Reopening).await.kill_after_each_write().await;
}

#[tokio::test]
async fn shutdown_survives_kill_after_each_write() {
    CrashEnv::new(Flow::Shutdown).await.kill_after_each_write().await;
}

#[tokio::test]
async fn kill_switch_survives_kill_after_each_write() {
    CrashEnv::new(Flow::KillSwitch).await.kill_after_each_write().await;
}

#[tokio::test]
async fn deletion_survives_kill_after_each_write() {
    CrashEnv::new(Flow::Deletion).await.kill_after_each_write().await;
}

#[tokio::test]
async fn reclaim_survives_kill_after_each_write() {
    CrashEnv::new(Flow::Reclaim).await.kill_after_each_write().await;
}

#[tokio::test]
async fn reclaim_survives_kill_after_each_write_and_loss_of_node() {
    CrashEnv::new(Flow::ReclaimWithoutNode).await.kill_after_each_write().await;
}

#[tokio::test]
async fn activation_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::Activation).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn reopening_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::Reopening).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn shutdown_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::Shutdown).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn kill_switch_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::KillSwitch).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn deletion_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::Deletion).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn reclaim_survives_lost_response_to_each_write() {
    CrashEnv::new(Flow::Reclaim).await.lose_response_to_each_write().await;
}

#[tokio::test]
async fn kind_edited_after_kill_leaves_nothing_of_the_first_kind() {
    let env = CrashEnv::new(Flow::Activation).await;
    let mut controller = env.start_controller().await;
    // The intent and the bootstrap object.
    env.proxy().kill_after(2, controller.pid());
    let sm = scheduled_machine(env.ns(), "edited").create().await;
    controller.wait_for_exit().await;
    assert!(sm.bootstrap().await.is_some(), "the bootstrap object is not the second write");
    assert_eq!(sm.get().await.status, None);

    let edited = json!({ "apiVersion": K0SMOTRON_WORKER_CONFIG.api_version(), "kind": K0SMOTRON_WORKER_CONFIG.kind });
    sm.patch(&json!({ "spec": { "bootstrapSpec": edited } })).await;
    let _restarted = env.start_controller().await;
    let status = sm.wait_for_phase(Phase::Active).await;
    assert_eq!(status.bootstrap_ref.unwrap().api_version, K0SMOTRON_WORKER_CONFIG.api_version());
    assert!(sm.bootstrap().await.is_none());
    let edited = env.ns().dynamic_api(&K0SMOTRON_WORKER_CONFIG.api_resource());
    assert!(edited.get_opt("edited-bootstrap").await.unwrap().is_some());
    env.close().await;
}

#[tokio::test]
async fn taint_ownership_survives_kill_before_status_write() {
    let env = CrashEnv::new(Flow::Activation).await;
    let mut controller = env.start_controller().await;
    let sm = scheduled_machine(env.ns(), "tainted").create_running().await;
    env.wait_until_quiescent().await;
    let set_taint = async |value: &str| {
        let taint = json!({ "key": "example.com/lent", "value": value, "effect": "NoSchedule" });
        sm.patch(&json!({ "spec": { "nodeTaints": [taint] } })).await;
    };
    let taint_value = async || json!(sm.node().await.spec.unwrap().taints)[0]["value"].clone();
    env.proxy().kill_after(1, controller.pid());
    set_taint("first").await;
    controller.wait_for_exit().await;
    assert_eq!(taint_value().await, "first", "the Node is not the first write");
    assert!(sm.status().await.applied_node_taints.is_empty(), "the status has been written");

    set_taint("second").await;
    let _restarted = env.start_controller().await;
    let status = sm.wait_for_condition("NodeTainted", ("True", "Applied")).await;
    assert_eq!(status.applied_node_taints[0].value.as_deref(), Some("second"));
    assert_eq!(taint_value().await, "second");
    env.close().await;
}

#[tokio::test]
async fn sigterm_waits_for_response_to_in_flight_write() {
    let env = CrashEnv::new(Flow::Activation).await;
    let mut controller = env.start_controller().await;
    env.proxy().hold_response_of(1);
    let sm = scheduled_machine(env.ns(), "in-flight").create().await;
    wait_for("a write is in flight", async || env.writes().len() == 1).await;
    controller.signal(Signal::TERM);
    wait_for("the controller shuts down", async || controller.get(Endpoint::Health, "/readyz").await.code == 503).await;
    // Long enough for a process that does not wait to exit.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(controller.is_running(), "the controller did not wait for the response");
    env.proxy().release();
    assert!(controller.wait_for_exit().await.success());
    assert_eq!(env.writes().len(), 1, "the controller sent another write");

    let _next = env.start_controller().await;
    sm.wait_until_running().await;
    env.close().await;
}

#[tokio::test]
async fn restart_in_steady_state_writes_nothing() {
    let env = CrashEnv::new(Flow::Activation).await;
    let mut controller = env.start_controller().await;
    let sm = scheduled_machine(env.ns(), "steady").create().await;
    let before = sm.wait_until_running().await;
    env.wait_until_quiescent().await;
    let writes = env.writes().len();
    controller.signal(Signal::KILL);
    controller.wait_for_exit().await;

    let mark = env.audit().mark();
    let _restarted = env.start_controller().await;
    wait_for("the restarted controller watches the Nodes of the workload cluster", async || {
        let requests = env.audit().since(mark).by(WORKLOAD_ADMIN).on("nodes").filter(sent_by_controller);
        !requests.filter(|it| it.verb == "watch" && it.stage == "ResponseStarted").is_empty()
    })
    .await;
    env.wait_until_quiescent().await;
    assert_eq!(env.writes()[writes..], []);
    assert_eq!(sm.status().await, before);
    env.close().await;
}
