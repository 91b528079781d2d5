//! Killed after each single write of each flow, and started again, or left without an answer to it: it ends as if nothing
//! had happened.
//!
//! The writes of an uninterrupted run are taken from the API server's audit log. Then, for each of them, a fresh object
//! goes through the same flow, and the process is killed when the API server has carried out that write, before it hears
//! of it. A new process has to bring it to the same end.
#![allow(clippy::explicit_write, reason = "what a passing test prints in the usual way is kept from view")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

#[path = "../fixtures/mod.rs"]
mod fixtures;
mod flow;
mod stage;

use fivespot_testbed::process::Signal;
use fivespot_testbed::wait::eventually;
use fixtures::{Desk, SOON, always, condition};
use flow::Flow;
use serde_json::json;
use stage::Stage;

#[tokio::test]
async fn killed_after_any_write_of_an_activation_there_is_one_machine() {
    Stage::set(Flow::Activation).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_shutdown_nothing_is_left() {
    Stage::set(Flow::Shutdown).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_kill_nothing_is_left() {
    Stage::set(Flow::Kill).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_deletion_nothing_is_left() {
    Stage::set(Flow::Deletion).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_reclaim_the_machine_stays_with_its_owner() {
    Stage::set(Flow::Reclaim).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_reclaim_and_without_a_node_the_machine_stays_with_its_owner() {
    Stage::set(Flow::ReclaimWithoutNode).await.kill_after_each_write().await;
}

#[tokio::test]
async fn without_an_answer_to_any_write_of_a_reclaim_the_machine_stays_with_its_owner() {
    Stage::set(Flow::Reclaim).await.lose_the_answer_to_each_write().await;
}

#[tokio::test]
async fn without_an_answer_to_any_write_of_an_activation_there_is_one_machine() {
    Stage::set(Flow::Activation).await.lose_the_answer_to_each_write().await;
}

#[tokio::test]
async fn without_an_answer_to_any_write_of_a_shutdown_nothing_is_left() {
    Stage::set(Flow::Shutdown).await.lose_the_answer_to_each_write().await;
}

#[tokio::test]
async fn without_an_answer_to_any_write_of_a_kill_nothing_is_left() {
    Stage::set(Flow::Kill).await.lose_the_answer_to_each_write().await;
}

#[tokio::test]
async fn without_an_answer_to_any_write_of_a_deletion_nothing_is_left() {
    Stage::set(Flow::Deletion).await.lose_the_answer_to_each_write().await;
}

#[tokio::test]
async fn killed_between_the_taints_and_the_status_it_knows_its_own() {
    let stage = Stage::set(Flow::Activation).await;
    let mut controller = stage.start().await;
    let desk = Desk::new(stage.test(), "tainted");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    stage.rests().await;
    let want = async |value: &str| {
        let taint = json!({ "key": "example.com/lent", "value": value, "effect": "NoSchedule" });
        desk.edit(&json!({ "spec": { "nodeTaints": [taint] } })).await;
    };
    stage.proxy().kill_after(1, controller.pid());
    want("first").await;
    controller.ended().await;
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_eq!(json!(node.spec.unwrap().taints)[0]["value"], "first", "the first write is that of the Node");
    assert!(desk.status().await.applied_node_taints.is_empty(), "the status has not been written");

    want("second").await;
    let _restarted = stage.start().await;
    let applied = ("True".to_owned(), "Applied".to_owned());
    let status = desk.until("tainted", |it| condition(it, "NodeTainted") == applied).await;
    assert_eq!(status.applied_node_taints[0].value.as_deref(), Some("second"));
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_eq!(json!(node.spec.unwrap().taints)[0]["value"], "second");
    stage.close().await;
}

#[tokio::test]
async fn told_to_stop_it_hears_the_answer_to_what_it_has_sent() {
    let stage = Stage::set(Flow::Activation).await;
    let mut controller = stage.start().await;
    stage.proxy().hold_response_of(1);
    let desk = Desk::new(stage.test(), "in-flight");
    desk.create(&always(), &json!({})).await;
    eventually("a write is under way", SOON, async || stage.writes().len() == 1).await;
    controller.signal(Signal::TERM);
    eventually("it has heard", SOON, async || controller.log().contains("\"message\":\"stopping\"")).await;
    assert!(!controller.log().contains("\"message\":\"stopped\""), "it did not wait for the answer");
    stage.proxy().release();
    assert!(controller.ended().await.success());
    assert_eq!(stage.writes().len(), 1, "nothing else was begun");

    let _next = stage.start().await;
    desk.runs().await;
    stage.close().await;
}

#[tokio::test]
async fn started_again_while_all_is_at_rest_it_writes_nothing() {
    let stage = Stage::set(Flow::Activation).await;
    let mut controller = stage.start().await;
    let desk = Desk::new(stage.test(), "resting");
    desk.create(&always(), &json!({})).await;
    let before = desk.runs().await;
    stage.rests().await;
    let writes = stage.writes().len();
    controller.signal(Signal::KILL);
    controller.ended().await;

    let restarted = stage.start().await;
    eventually("it has found the Node", SOON, async || restarted.log().contains("the workload cluster is connected"))
        .await;
    stage.rests().await;
    assert_eq!(stage.writes()[writes..], []);
    assert_eq!(desk.status().await, before);
    stage.close().await;
}
