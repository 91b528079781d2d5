//! The clusters that machines join: another API server, one that hangs, and whose Node a Node is.

use fivespot_api::Phase;
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::process::Signal;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, budget, condition, never, pod_on, testbed};

pub(crate) async fn workload(name: &str) -> (ControlPlane, Kwok) {
    let plane = ControlPlane::start(ControlPlaneOptions::named(name)).await.unwrap();
    let kwok = Kwok::start(&plane).await.unwrap();
    (plane, kwok)
}

#[tokio::test]
async fn a_machine_lives_its_day_in_another_cluster_and_a_node_of_its_name_here_is_left_alone() {
    let (elsewhere, _kwok) = workload("elsewhere").await;
    let testbed = testbed().await;
    let test = testbed.namespace("elsewhere").await;
    testbed.cluster_on(&elsewhere, &test, "edge").await.unwrap();
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    // One of the same name, in the wrong cluster.
    let namesake: Node = serde_json::from_value(json!({
        "metadata": { "name": desk.node_name() }, "spec": { "providerID": "other://machine" },
    }))
    .unwrap();
    desk.nodes().create(&PostParams::default(), &namesake).await.unwrap();
    let taint = json!({ "key": "example.com/lent", "effect": "NoSchedule" });
    let timeouts = json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h", "nodeTaints": [taint] });
    desk.create(&always(), &timeouts).await;
    let there: Api<Node> = Api::all(elsewhere.client());
    let running = desk.runs().await;
    let node = there.get(&desk.node_name()).await.unwrap();
    assert_eq!(running.node_ref.unwrap().uid, node.metadata.uid);
    desk.until("tainted", |it| condition(it, "NodeTainted").1 == "Applied").await;
    let tainted = there.get(&desk.node_name()).await.unwrap().spec.unwrap().taints.unwrap_or_default();
    assert!(tainted.iter().any(|it| it.key == "example.com/lent"), "{tainted:#?}");

    let team = Namespace {
        metadata: kube::core::ObjectMeta { name: Some("team".into()), ..Default::default() },
        ..Default::default()
    };
    Api::<Namespace>::all(elsewhere.client()).create(&PostParams::default(), &team).await.unwrap();
    pod_on(&elsewhere.client(), "team", ("web", &desk.node_name()), &json!({ "app": "web" })).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(elsewhere.client(), "team");
    budget(&elsewhere.client(), "team", "web", &json!({ "app": "web" })).await;
    desk.reschedule(&never()).await;
    desk.until("held", |it| it.message.as_deref() == Some("draining: 1 of 1 pod left, 1 blocked by PDB team/web"))
        .await;
    assert_eq!(there.get(&desk.node_name()).await.unwrap().spec.unwrap().unschedulable, Some(true));
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    let over = desk.reaches(Phase::Inactive).await;
    assert!(over.applied_node_taints.is_empty(), "{over:#?}");
    assert_eq!(condition(&over, "NodeTainted"), ("Unknown".into(), "NoNodeYet".into()));
    assert_eq!(desk.children().await, (false, false, false));
    assert!(there.get_opt(&desk.node_name()).await.unwrap().is_none());
    let pods: Api<Pod> = Api::namespaced(elsewhere.client(), "team");
    assert!(pods.get_opt("web").await.unwrap().is_none());
    let namesake = desk.nodes().get(&desk.node_name()).await.unwrap();
    let untouched = namesake.spec.unwrap();
    assert!(
        untouched.unschedulable != Some(true)
            && untouched.taints.unwrap_or_default().iter().all(|it| it.key != "example.com/lent")
    );
    desk.nodes().delete(&desk.node_name(), &DeleteParams::default()).await.unwrap();
    test.close().await;
}

#[tokio::test]
async fn a_cluster_that_hangs_holds_up_nobody_else_and_is_found_again() {
    let (hanging, _kwok) = workload("hanging").await;
    let testbed = testbed().await;
    let test = testbed.namespace("hanging").await;
    testbed.cluster_on(&hanging, &test, "far").await.unwrap();
    testbed.cluster(&test, "edge").await.unwrap();
    let _controller = Controller::start_in(testbed, &test).await;
    let far: Vec<String> = (0..8).map(|it| format!("far-{it}")).collect();
    for name in &far {
        Desk::new(&test, name).create(&always(), &json!({ "clusterName": "far" })).await;
    }
    for name in &far {
        Desk::new(&test, name).runs().await;
    }
    // However many machines have joined, its Nodes are listed and watched once.
    let of_nodes = |verb: &'static str| {
        hanging.audit().entries().filter(move |it| {
            it.user_agent.starts_with("5spot/") && it.resource == "nodes" && it.verb == verb && it.name.is_empty()
        })
    };
    hanging.audit().caught_up(&hanging.client()).await;
    assert_eq!(of_nodes("list").len(), 1, "{:#?}", of_nodes("list"));
    hanging.signal_api_server(Signal::STOP).unwrap();
    for name in &far {
        Desk::new(&test, name).reschedule(&never()).await;
    }
    let near = Desk::new(&test, "near");
    near.create(&always(), &json!({})).await;
    near.runs().await;
    near.reschedule(&never()).await;
    near.reaches(Phase::Inactive).await;
    for name in &far {
        let status = Desk::new(&test, name).status().await;
        assert_ne!(status.phase, Some(Phase::Inactive), "{name} was not held up at all: {status:#?}");
    }
    let unknown = ("Unknown".to_owned(), "WorkloadClusterUnreachable".to_owned());
    Desk::new(&test, "far-0").until("told", |it| condition(it, "MachineReady") == unknown).await;
    hanging.signal_api_server(Signal::CONT).unwrap();
    for name in &far {
        Desk::new(&test, name).reaches(Phase::Inactive).await;
    }
    // Nobody has a Node there any more, so nobody watches.
    eventually("every watch of its Nodes is over", SOON, async || {
        let (begun, over) = (of_nodes("watch"), of_nodes("watch").filter(|it| it.stage == "ResponseComplete"));
        let begun = begun.filter(|it| it.stage == "ResponseStarted");
        if begun.len() == over.len() && !over.is_empty() { Ok(()) } else { Err(format!("{begun:#?} {over:#?}")) }
    })
    .await;
    test.close().await;
}

#[tokio::test]
async fn a_node_that_two_machines_claim_is_nobodys() {
    let (test, _controller) = a_cluster("claimed twice").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })).await;
    let running = desk.runs().await;
    let reference = |kind: &str, group: &str| json!({ "apiGroup": group, "kind": kind, "name": "theirs" });
    let mut other =
        kube::api::DynamicObject::new("other", &crate::fixtures::machine_resource()).data(json!({ "spec": {
        "clusterName": "edge",
        "providerID": running.provider_id,
        "bootstrap": { "configRef": reference("K0sWorkerConfig", "bootstrap.cluster.x-k8s.io") },
        "infrastructureRef": reference("RemoteMachine", "infrastructure.cluster.x-k8s.io"),
    } }));
    // Cluster API would take the Node away with it, when it goes.
    let paused = [("cluster.x-k8s.io/paused".to_owned(), String::new())];
    other.metadata.annotations = Some(paused.into());
    desk.machines().create(&PostParams::default(), &other).await.unwrap();
    let told = desk.until("nobody's", |it| it.node_ref.is_none()).await;
    assert!(told.message.as_ref().unwrap().contains("providerID"), "{told:#?}");
    desk.machines().delete("other", &DeleteParams::default()).await.unwrap();
    // If Cluster API has put its finalizer there already, nobody else takes it off.
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let freed = desk.machines().patch("other", &PatchParams::default(), &let_go).await;
    assert!(freed.is_ok() || desk.machines().get_opt("other").await.unwrap().is_none(), "{freed:?}");
    desk.until("its own again", |it| it.node_ref.is_some()).await;
    test.close().await;
}
