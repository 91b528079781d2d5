//! Workload clusters: a separate API server, one that hangs, and which Node belongs to a machine.

use fivespot_api::Phase;
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::process::Signal;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{
    Children, Controller, TestMachine, always, condition, create_pdb, create_pod, foreign_machine, message_contains,
    messages, namespace_with_cluster, never, scheduled_machine, sent_by_controller, setup, testbed, wait_for,
};

pub(crate) async fn start_workload_cluster(name: &str) -> (ControlPlane, Kwok) {
    let plane = ControlPlane::start(ControlPlaneOptions::named(name)).await.unwrap();
    let kwok = Kwok::start(&plane).await.unwrap();
    (plane, kwok)
}

#[tokio::test]
async fn machine_joins_workload_cluster_and_namesake_node_is_untouched() {
    let (workload, _kwok) = start_workload_cluster("workload").await;
    let testbed = testbed().await;
    let ns = testbed.namespace("workload-cluster").await;
    testbed.cluster_on(&workload, &ns, "edge").await.unwrap();
    let _controller = Controller::start(testbed, &ns).await;
    // A Node of the same name in the management cluster.
    let management_nodes = TestMachine::new(&ns, "desk-01").nodes();
    let namesake: Node = serde_json::from_value(json!({
        "metadata": { "name": TestMachine::new(&ns, "desk-01").node_name() },
        "spec": { "providerID": "other://machine" },
    }))
    .unwrap();
    management_nodes.create(&PostParams::default(), &namesake).await.unwrap();
    let taint = json!({ "key": "example.com/lent", "effect": "NoSchedule" });
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().node_taints(&[taint]).create().await;
    let workload_nodes: Api<Node> = Api::all(workload.client());
    let running = sm.wait_until_running().await;
    let node = workload_nodes.get(&sm.node_name()).await.unwrap();
    assert_eq!(running.node_ref.unwrap().uid, node.metadata.uid);
    sm.wait_until("tainted", |status| condition(status, "NodeTainted").1 == "Applied").await;
    let taints = workload_nodes.get(&sm.node_name()).await.unwrap().spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|it| it.key == "example.com/lent"), "{taints:#?}");

    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    Api::<Namespace>::all(workload.client()).create(&PostParams::default(), &team).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(workload.client(), "team");
    let pdbs: Api<PodDisruptionBudget> = Api::namespaced(workload.client(), "team");
    create_pod(&pods, "web", &sm.node_name(), &json!({ "app": "web" })).await;
    create_pdb(&pdbs, "web", &json!({ "app": "web" })).await;
    sm.set_schedule(&never()).await;
    sm.wait_for_drain_message(&messages::draining_one_pod_blocked_by(&sm.node_name(), "team/web")).await;
    assert_eq!(workload_nodes.get(&sm.node_name()).await.unwrap().spec.unwrap().unschedulable, Some(true));
    pdbs.delete("web", &DeleteParams::default()).await.unwrap();
    let inactive = sm.wait_for_phase(Phase::Inactive).await;
    assert!(inactive.applied_node_taints.is_empty(), "{inactive:#?}");
    assert_eq!(condition(&inactive, "NodeTainted"), ("Unknown", "NoNodeYet"));
    assert_eq!(sm.children().await, Children::NONE);
    assert!(workload_nodes.get_opt(&sm.node_name()).await.unwrap().is_none());
    assert!(pods.get_opt("web").await.unwrap().is_none());
    let namesake = management_nodes.get(&sm.node_name()).await.unwrap().spec.unwrap();
    assert_ne!(namesake.unschedulable, Some(true));
    assert!(namesake.taints.unwrap_or_default().iter().all(|it| it.key != "example.com/lent"));
    management_nodes.delete(&sm.node_name(), &DeleteParams::default()).await.unwrap();
    ns.close().await;
}

#[tokio::test]
async fn hanging_cluster_does_not_delay_others_and_recovers() {
    let (hanging, _kwok) = start_workload_cluster("hanging").await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("hanging-cluster").await;
    testbed.cluster_on(&hanging, &ns, "far").await.unwrap();
    let _controller = Controller::start(testbed, &ns).await;
    let far: Vec<TestMachine<'_>> = (0..8).map(|it| TestMachine::new(&ns, &format!("far-{it}"))).collect();
    for sm in &far {
        scheduled_machine(&ns, &sm.name).cluster("far").create().await;
    }
    for sm in &far {
        sm.wait_until_running().await;
    }
    // One list and one watch serve all machines of a cluster. The list has no Nodes: each is read by name.
    let node_requests = |verb: &'static str| {
        let requests = hanging.audit().entries().filter(sent_by_controller);
        requests.filter(move |it| it.resource == "nodes" && it.verb == verb)
    };
    hanging.audit().caught_up(&hanging.client()).await;
    assert_eq!(node_requests("list").len(), 1, "{:#?}", node_requests("list"));
    hanging.signal_api_server(Signal::STOP).unwrap();
    for sm in &far {
        sm.set_schedule(&never()).await;
    }
    let near = scheduled_machine(&ns, "near").create_running().await;
    near.set_schedule(&never()).await;
    near.wait_for_phase(Phase::Inactive).await;
    for sm in &far {
        let status = sm.status().await;
        assert_ne!(status.phase, Some(Phase::Inactive), "{} did not wait for its cluster: {status:#?}", sm.name);
    }
    far[0].wait_for_condition("MachineReady", ("Unknown", "WorkloadClusterUnreachable")).await;
    hanging.signal_api_server(Signal::CONT).unwrap();
    for sm in &far {
        sm.wait_for_phase(Phase::Inactive).await;
    }
    // The cluster has no machines left, so the controller stops watching its Nodes.
    wait_for("all watches of Nodes have ended", async || {
        let started = node_requests("watch").filter(|it| it.stage == "ResponseStarted");
        let ended = node_requests("watch").filter(|it| it.stage == "ResponseComplete");
        let all_ended = started.len() == ended.len() && !ended.is_empty();
        if all_ended { Ok(()) } else { Err(format!("{started:#?} {ended:#?}")) }
    })
    .await;
    ns.close().await;
}

#[tokio::test]
async fn node_claimed_by_two_machines_is_not_managed_and_no_machine_is_deleted_undrained() {
    let (ns, _controller) = setup("claimed-twice").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create().await;
    let running = sm.wait_until_running().await;
    let mut other = foreign_machine("other", "edge", &json!({ "providerID": running.provider_id }));
    // A paused Machine: otherwise Cluster API would delete the Node together with it.
    other.metadata.annotations = Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
    sm.machines().create(&PostParams::default(), &other).await.unwrap();
    let status = sm.wait_until("the Node is not managed", |status| status.node_ref.is_none()).await;
    assert!(message_contains(&status, messages::CLAIMED_TWICE), "{status:#?}");
    // Which Machine the Node belongs to is unknown, so the window's end does not delete one with pods on it.
    sm.create_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_message(messages::CANNOT_IDENTIFY_NODE).await;
    assert!(!sm.machine_is_terminating().await);
    sm.set_schedule(&always()).await;
    sm.wait_for_phase(Phase::Active).await;
    sm.machines().delete("other", &DeleteParams::default()).await.unwrap();
    // Cluster API may have added its finalizer, and does not remove it from a paused Machine.
    let finalizers = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let patched = sm.machines().patch("other", &PatchParams::default(), &finalizers).await;
    assert!(patched.is_ok() || sm.machines().get_opt("other").await.unwrap().is_none(), "{patched:?}");
    sm.wait_until("the Node is managed again", |status| status.node_ref.is_some()).await;
    let pods: Api<Pod> = ns.api();
    assert!(pods.get_opt("web").await.unwrap().is_some());
    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    assert!(pods.get_opt("web").await.unwrap().is_none());
    ns.close().await;
}
