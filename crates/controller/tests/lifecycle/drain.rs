//! Which pods are evicted, which may stay, and what happens when pods do not terminate in time.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{
    TestMachine, assert_events_once, create_pdb, message_contains, messages, never, scheduled_machine,
    sent_by_controller, setup, testbed, wait_for,
};

async fn set_pod_finalizers(ns: &TestNamespace, name: &str, finalizers: Value) {
    let patch = json!({ "metadata": { "finalizers": finalizers } });
    ns.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Creates a DaemonSet for the Node of this machine and returns its pod.
async fn create_daemon_set_pod(sm: &TestMachine<'_>) -> Pod {
    let daemon_set: DaemonSet = serde_json::from_value(json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": sm.node_name() },
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "main", "image": "none" }],
                },
            },
        },
    }))
    .unwrap();
    sm.patch_node(&json!({ "metadata": { "labels": { "kubernetes.io/hostname": sm.node_name() } } })).await;
    sm.ns.api::<DaemonSet>().create(&PostParams::default(), &daemon_set).await.unwrap();
    wait_for("the DaemonSet's pod is scheduled", async || {
        let pods = sm.ns.api::<Pod>().list(&ListParams::default().labels("app=agent")).await.unwrap();
        pods.items.into_iter().find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    })
    .await
}

async fn create_mirror_pod(sm: &TestMachine<'_>, name: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": sm.node_name(), "containers": [{ "name": "main", "image": "none" }] },
    }))
    .unwrap();
    sm.ns.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
}

#[tokio::test]
async fn drain_skips_daemon_set_mirror_and_finished_pods_and_waits_for_terminating() {
    let (ns, _controller) = setup("drain-filter").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    let daemon_set_pod = create_daemon_set_pod(&sm).await;
    sm.create_pod("finished").await;
    let succeeded = json!({ "status": { "phase": "Succeeded" } });
    ns.api::<Pod>().patch_status("finished", &PatchParams::default(), &Patch::Merge(&succeeded)).await.unwrap();
    create_mirror_pod(&sm, "mirror").await;
    sm.create_pod("slow").await;
    set_pod_finalizers(&ns, "slow", json!(["example.com/slow"])).await;

    sm.set_schedule(&never()).await;
    sm.wait_for_drain_message(&messages::draining_one_pod(&sm.node_name())).await;
    wait_for("the slow pod is terminating", async || {
        ns.api::<Pod>().get("slow").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    for name in ["finished", "mirror", &daemon_set_pod.name_any()] {
        let pod = ns.api::<Pod>().get(name).await.unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none(), "{name}");
    }
    assert!(sm.machine().await.unwrap().metadata.deletion_timestamp.is_none());
    set_pod_finalizers(&ns, "slow", Value::Null).await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn pod_with_two_pdbs_is_blocked_without_error() {
    let (ns, _controller) = setup("two-pdbs").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    sm.create_pod("web").await;
    for pdb in ["one", "two"] {
        create_pdb(&ns.api(), pdb, &json!({ "app": "web" })).await;
    }
    sm.set_schedule(&never()).await;
    let message = messages::draining_one_pod_blocked_by_several_pdbs(&sm.node_name(), &ns.name);
    let blocked = sm.wait_for_drain_message(&message).await;
    assert_eq!(blocked.phase, Some(Phase::ShuttingDown));
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    ns.close().await;
}

#[tokio::test]
async fn machine_is_deleted_after_drain_timeout() {
    let (ns, _controller) = setup("drain-timeout").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().node_drain_timeout("4s").create_running().await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    assert_events_once(&sm, &["DrainTimedOut"]).await;
    ns.close().await;
}

#[tokio::test]
async fn drain_does_not_wait_for_pods_on_unreachable_node() {
    let (ns, _controller) = setup("unreachable-node").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    sm.create_pod("stuck").await;
    set_pod_finalizers(&ns, "stuck", json!(["example.com/stuck"])).await;
    // KWOK stops updating the Node, so that its Ready condition stays Unknown.
    sm.patch_node(&json!({ "metadata": { "annotations": { "kwok.x-k8s.io/node": null } } })).await;
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    wait_for("the Node's Ready condition stays Unknown", async || {
        let params = PatchParams::default();
        sm.nodes().patch_status(&sm.node_name(), &params, &Patch::Strategic(&unknown)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let conditions = sm.node().await.status.unwrap().conditions.unwrap();
        conditions.iter().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    })
    .await;
    sm.wait_for_message(messages::NODE_NOT_READY).await;
    sm.set_schedule(&never()).await;
    sm.wait_until("the Machine is deleted", |status| {
        status.phase == Some(Phase::Inactive) || message_contains(status, messages::WAITING_FOR_CLUSTER_API)
    })
    .await;
    set_pod_finalizers(&ns, "stuck", Value::Null).await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn kill_switch_deletes_pods_without_eviction() {
    let audit = testbed().await.audit();
    let (ns, _controller) = setup("kill-switch").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    sm.create_blocked_pod("web").await;
    let mark = audit.mark();
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    audit.caught_up(&ns.client).await;
    let writes = audit.since(mark).writes().filter(sent_by_controller).filter(|it| it.uri.contains(&ns.name));
    let writes: Vec<String> = writes.0.iter().map(|it| format!("{} {}", it.verb, it.target())).collect();
    assert!(!writes.contains(&"create pods/eviction".to_owned()), "{writes:?}");
    for write in ["patch machines", "delete machines", "patch nodes", "delete pods"] {
        assert!(writes.contains(&write.to_owned()), "{write}: {writes:?}");
    }
    assert_events_once(&sm, &["KillSwitchActivated"]).await;
    ns.close().await;
}
