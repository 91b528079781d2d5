//! A Cluster that does not exist, is being deleted, or is paused.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixtures::{
    Children, Controller, cluster_resource, condition, message_contains, messages, never, scheduled_machine,
    set_cluster_paused, setup, testbed, wait_for,
};

fn clusters(ns: &TestNamespace) -> Api<DynamicObject> {
    ns.dynamic_api(&cluster_resource())
}

async fn set_cluster_finalizers(ns: &TestNamespace, finalizers: Value) {
    let patch = json!({ "metadata": { "finalizers": finalizers } });
    clusters(ns).patch("edge", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn machine_is_created_once_cluster_exists() {
    let testbed = testbed().await;
    let ns = testbed.namespace("cluster-created-later").await;
    let _controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "ClusterNotFound"));
    assert_eq!(sm.children().await, Children::NONE);
    testbed.cluster(&ns, "edge").await.unwrap();
    sm.wait_until_running().await;
    ns.close().await;
}

#[tokio::test]
async fn no_machine_is_created_in_deleting_cluster() {
    let (ns, _controller) = setup("cluster-deleting").await;
    set_cluster_finalizers(&ns, json!(["example.com/held"])).await;
    clusters(&ns).delete("edge", &DeleteParams::default()).await.unwrap();
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "ClusterDeleting"));
    assert_eq!(sm.children().await, Children::NONE);
    set_cluster_finalizers(&ns, Value::Null).await;
    sm.wait_for_condition("ReferencesValid", ("False", "ClusterNotFound")).await;
    ns.close().await;
}

#[tokio::test]
async fn paused_cluster_blocks_creation_and_shutdown_but_not_kill_switch() {
    let (ns, _controller) = setup("cluster-paused").await;
    set_cluster_paused(&ns, true).await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let status = sm.wait_for_phase(Phase::Pending).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "ClusterPaused"));
    assert_eq!(sm.children().await, Children::NONE);
    set_cluster_paused(&ns, false).await;
    sm.wait_until_running().await;

    set_cluster_paused(&ns, true).await;
    sm.wait_for_condition("ReferencesValid", ("False", "ClusterPaused")).await;
    sm.set_schedule(&never()).await;
    let status = sm.wait_for_phase(Phase::ShuttingDown).await;
    assert!(message_contains(&status, messages::CLUSTER_PAUSED), "{status:#?}");
    assert!(sm.machine().await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(!sm.node_is_cordoned().await);

    // The kill switch deletes the Machine; Cluster API removes it after it is resumed.
    sm.set_kill_switch(true).await;
    wait_for("the Machine is terminating and the Node is cordoned", async || {
        sm.machine_is_terminating().await && sm.node_is_cordoned().await
    })
    .await;
    set_cluster_paused(&ns, false).await;
    sm.wait_for_phase(Phase::Terminated).await;
    assert_eq!(sm.children().await, Children::NONE);
    ns.close().await;
}

#[tokio::test]
async fn shutdown_timeouts_restart_after_cluster_is_resumed() {
    let (ns, _controller) = setup("paused-shutdown").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    let first = sm.wait_for_message(messages::BLOCKED_BY_PDB).await.shutdown_started_at.unwrap();
    set_cluster_paused(&ns, true).await;
    let paused = sm.wait_for_message(messages::CLUSTER_PAUSED).await;
    assert_eq!((paused.phase, paused.shutdown_started_at), (Some(Phase::ShuttingDown), None));
    // Timestamps in the status have a resolution of one second.
    wait_for("the next second", async || jiff::Timestamp::now().as_second() > first.0.as_second()).await;
    set_cluster_paused(&ns, false).await;
    let resumed = sm
        .wait_until("the drain is blocked again", |status| {
            message_contains(status, messages::BLOCKED_BY_PDB) && status.shutdown_started_at.is_some()
        })
        .await;
    assert!(resumed.shutdown_started_at.unwrap().0 > first.0);
    sm.unblock_pod("web").await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}
