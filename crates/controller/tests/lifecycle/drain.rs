//! Who has to leave a Node, who may stay, and what becomes of those who do not go in time.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{Desk, SOON, a_cluster, always, budget, never, testbed, told_once};

const LONG: &str = "1h";

async fn patch_pod(test: &TestNamespace, name: &str, patch: Value) {
    test.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn what_would_come_back_by_itself_or_has_ended_may_stay_and_what_is_leaving_is_waited_for() {
    let (test, _controller) = a_cluster("who leaves").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": LONG, "gracefulShutdownTimeout": LONG })).await;
    desk.runs().await;

    let daemon_set: DaemonSet = serde_json::from_value(json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": desk.node_name() },
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "main", "image": "none" }],
                },
            },
        },
    }))
    .unwrap();
    let hostname = json!({ "metadata": { "labels": { "kubernetes.io/hostname": desk.node_name() } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&hostname)).await.unwrap();
    test.api::<DaemonSet>().create(&PostParams::default(), &daemon_set).await.unwrap();
    let of_daemon_set = eventually("the DaemonSet has its pod", SOON, async || {
        let pods = test.api::<Pod>().list(&kube::api::ListParams::default().labels("app=agent")).await.unwrap();
        pods.items.into_iter().find(|it| it.spec.as_ref().is_some_and(|it| it.node_name.is_some()))
    })
    .await;
    desk.pod("finished", &json!({})).await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    test.api::<Pod>().patch_status("finished", &PatchParams::default(), &Patch::Merge(&ended)).await.unwrap();
    let mirror: Pod = serde_json::from_value(json!({
        "metadata": { "name": "mirror", "annotations": { "kubernetes.io/config.mirror": "x" } },
        "spec": { "nodeName": desk.node_name(), "containers": [{ "name": "main", "image": "none" }] },
    }))
    .unwrap();
    test.api::<Pod>().create(&PostParams::default(), &mirror).await.unwrap();
    desk.pod("slow", &json!({})).await;
    patch_pod(&test, "slow", json!({ "metadata": { "finalizers": ["example.com/slow"] } })).await;

    desk.reschedule(&never()).await;
    desk.until("only the slow one is left", |it| it.message.as_deref() == Some("draining: 1 of 1 pod left")).await;
    eventually("the slow one is leaving", SOON, async || {
        test.api::<Pod>().get("slow").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    for stays in ["finished", "mirror", &of_daemon_set.name_any()] {
        let pod = test.api::<Pod>().get(stays).await.unwrap();
        assert!(pod.metadata.deletion_timestamp.is_none(), "{stays}");
    }
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_none());
    patch_pod(&test, "slow", json!({ "metadata": { "finalizers": null } })).await;
    desk.reaches(Phase::Inactive).await;
    test.close().await;
}

#[tokio::test]
async fn a_pod_under_two_budgets_is_blocked_and_not_an_error() {
    let (test, _controller) = a_cluster("two budgets").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": LONG, "gracefulShutdownTimeout": LONG })).await;
    desk.runs().await;
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "one", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "two", &json!({ "app": "web" })).await;
    desk.reschedule(&never()).await;
    let told = format!("draining: 1 of 1 pod left, 1 blocked by PDBs of namespace {}", test.name);
    let blocked = desk.until("blocked", |it| it.message.as_deref() == Some(told.as_str())).await;
    assert_eq!(blocked.phase, Some(Phase::ShuttingDown));
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    desk.reaches(Phase::Terminated).await;
    test.close().await;
}

#[tokio::test]
async fn a_drain_that_takes_too_long_is_told_and_ended() {
    let (test, _controller) = a_cluster("too long").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "4s", "gracefulShutdownTimeout": LONG })).await;
    desk.runs().await;
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;
    desk.reschedule(&never()).await;
    desk.reaches(Phase::Inactive).await;
    told_once(&desk, &["DrainTimedOut"]).await;
    test.close().await;
}

#[tokio::test]
async fn pods_of_a_node_that_does_not_answer_are_not_waited_for() {
    let (test, _controller) = a_cluster("silent node").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": LONG, "gracefulShutdownTimeout": LONG })).await;
    desk.runs().await;
    desk.pod("stuck", &json!({})).await;
    patch_pod(&test, "stuck", json!({ "metadata": { "finalizers": ["example.com/stuck"] } })).await;
    // KWOK is told to leave this Node alone, and the kubelet counts as silent.
    let silent = json!({ "metadata": { "annotations": { "kwok.x-k8s.io/node": null } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&silent)).await.unwrap();
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    eventually("the Node counts as silent", SOON, async || {
        let params = PatchParams::default();
        desk.nodes().patch_status(&desk.node_name(), &params, &Patch::Strategic(&unknown)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let node = desk.nodes().get(&desk.node_name()).await.unwrap();
        node.status.unwrap().conditions.unwrap().iter().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    })
    .await;
    desk.until("not Ready", |it| it.message.as_ref().is_some_and(|it| it.contains("is not Ready"))).await;
    desk.reschedule(&never()).await;
    desk.until("the Machine is deleted", |it| {
        it.phase == Some(Phase::Inactive) || it.message.as_deref() == Some("Cluster API removes the machine")
    })
    .await;
    patch_pod(&test, "stuck", json!({ "metadata": { "finalizers": null } })).await;
    desk.reaches(Phase::Inactive).await;
    test.close().await;
}

#[tokio::test]
async fn an_eject_asks_nobody_and_ends_pods_at_once() {
    let testbed = testbed().await;
    let (test, _controller) = a_cluster("eject").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": LONG, "gracefulShutdownTimeout": LONG })).await;
    desk.runs().await;
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;
    let audit = testbed.audit();
    let mark = audit.mark();
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    desk.reaches(Phase::Terminated).await;
    audit.caught_up(&test.client).await;
    let ours = audit.since(mark).filter(|it| it.user_agent.starts_with("5spot/") && it.uri.contains(&test.name));
    let ours = ours.writes();
    let done: Vec<String> = ours.0.iter().map(|it| format!("{} {}", it.verb, it.target())).collect();
    assert!(!done.contains(&"create pods/eviction".to_owned()), "{done:?}");
    for act in ["patch machines", "delete machines", "patch nodes", "delete pods"] {
        assert!(done.contains(&act.to_owned()), "{act}: {done:?}");
    }
    told_once(&desk, &["KillSwitchActivated"]).await;
    test.close().await;
}
