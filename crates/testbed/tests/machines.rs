//! Machines through the real Cluster API: they come, they go, they fail, and only Cluster API writes their status.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

mod fixtures;

use std::time::Duration;

use fivespot_testbed::control_plane::{CLUSTER_API, SIMULATED_PROVIDER};
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::provider::{Behaviour, Joining, Removal, Step, node_name, provider_id};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode, Testbed, shared};
use fixtures::{Order, SOON, Version};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn comes_and_goes(name: &str, version: Version) {
    let testbed = shared().await;
    let test = testbed.namespace(name).await;
    testbed.cluster(&test, "edge").await.unwrap();
    let order = Order::new(&test, "desk-01", version);
    order.place("edge").await;

    let node = order.runs().await;
    assert_eq!(node, node_name(&test.name, "desk-01"));
    let nodes: Api<Node> = Api::all(test.client.clone());
    nodes.get(&node).await.unwrap();
    let finalizers = order.machine().get("desk-01").await.unwrap().metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["machine.cluster.x-k8s.io".to_owned()]));

    order.machine().delete("desk-01", &DeleteParams::default()).await.unwrap();
    order.is_gone().await;
    assert!(nodes.get_opt(&node).await.unwrap().is_none());
    test.close().await;
}

#[tokio::test]
async fn a_machine_ordered_in_v1beta1_runs_and_goes() {
    comes_and_goes("v1beta1", Version::V1Beta1).await;
}

#[tokio::test]
async fn a_machine_ordered_in_v1beta2_runs_and_goes() {
    comes_and_goes("v1beta2", Version::V1Beta2).await;
}

#[tokio::test]
async fn a_machine_can_be_this_one_by_a_real_kubelet() {
    if !RealNode::is_possible() {
        return;
    }
    let options = ControlPlaneOptions::named("real-machine").for_real_nodes();
    let testbed = Testbed::start_with_fleet(options).await.unwrap();
    let test = testbed.namespace("real kubelet").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let by_kubelet = Behaviour { joining: Joining::ByKubelet, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&test.name, by_kubelet);
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    let name = node_name(&test.name, "desk-01");
    let id = provider_id(&test.name, "desk-01");
    let node = RealNode::start(testbed.control_plane(), &name, &id).await.unwrap();
    assert_eq!(order.runs().await, name);

    order.machine().delete("desk-01", &DeleteParams::default()).await.unwrap();
    order.is_gone().await;
    let nodes: Api<Node> = Api::all(test.client.clone());
    assert!(nodes.get_opt(&name).await.unwrap().is_none());
    node.stop().await;
}

#[tokio::test]
async fn only_cluster_api_writes_what_is_cluster_apis() {
    let testbed = shared().await;
    let test = testbed.namespace("who writes machines").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    order.runs().await;
    order.machine().delete("desk-01", &DeleteParams::default()).await.unwrap();
    order.is_gone().await;

    testbed.audit().caught_up(&test.client).await;
    let here = testbed.audit().entries().in_namespace(&test.name).writes().succeeded();
    assert_eq!(here.clone().on("machines/status").users(), [CLUSTER_API]);
    assert_eq!(here.clone().on("machines").users(), ["admin", CLUSTER_API]);
    let by_admin: Vec<String> = here.clone().on("machines").by("admin").0.into_iter().map(|entry| entry.verb).collect();
    assert_eq!(by_admin, ["create", "delete"]);
    // The provider was at work, and elsewhere.
    assert!(!here.clone().by(SIMULATED_PROVIDER).on("remotemachines/status").is_empty());
    assert!(here.by(SIMULATED_PROVIDER).filter(|entry| entry.group == "cluster.x-k8s.io").is_empty());
}

#[tokio::test]
async fn the_provider_may_not_write_a_machine_even_if_it_tried() {
    let testbed = shared().await;
    let test = testbed.namespace("forbidden").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    order.runs().await;

    let provider = testbed.control_plane().access(SIMULATED_PROVIDER).unwrap().client();
    let machines: Api<DynamicObject> = Api::namespaced_with(provider, &test.name, &order.machine_resource());
    machines.get("desk-01").await.unwrap();
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null }, "status": { "phase": "Failed" } }));
    let refusals = [
        machines.patch("desk-01", &PatchParams::default(), &patch).await.unwrap_err(),
        machines.patch_status("desk-01", &PatchParams::default(), &patch).await.unwrap_err(),
    ];
    for refusal in refusals {
        assert!(matches!(&refusal, kube::Error::Api(status) if status.code == 403), "{refusal}");
    }
    test.close().await;
}

#[tokio::test]
async fn a_failed_machine_is_told_by_its_conditions_and_not_by_its_phase() {
    let testbed = shared().await;
    let test = testbed.namespace("failure").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let provider = &testbed.fleet().await.provider;
    let no_power = Step::Fail { reason: "CreateError".to_owned(), message: "no power".to_owned() };
    provider.behave_in(&test.name, Behaviour { infrastructure: no_power, ..Behaviour::default() });
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;

    let status = eventually("Cluster API reports the failure", SOON, async || {
        let status = status_of(&order).await?;
        let is_reported = condition(&status, "InfrastructureReady")["status"] == "False"
            && status["deprecated"]["v1beta1"]["failureReason"] == "CreateError"
            && status["phase"] == "Provisioning";
        if is_reported { Ok(status) } else { Err(status) }
    })
    .await;
    let infrastructure = condition(&status, "InfrastructureReady");
    assert_eq!((&infrastructure["reason"], &infrastructure["message"]), (&json!("CreateError"), &json!("no power")));
    assert!(status["deprecated"]["v1beta1"]["failureMessage"].as_str().unwrap().ends_with("no power"));
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_is_never_ready_waits_until_told_otherwise() {
    let testbed = shared().await;
    let test = testbed.namespace("never ready").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let provider = &testbed.fleet().await.provider;
    let stuck = Behaviour { infrastructure: Step::Never, removal: Removal::Never, ..Behaviour::default() };
    provider.behave_for(&test.name, "desk-01", stuck.clone());
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    eventually("the Machine waits for its infrastructure", SOON, async || {
        let status = status_of(&order).await?;
        if condition(&status, "BootstrapConfigReady")["status"] == "True" { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(nodes_of(&test.name, testbed.client()).await.is_empty());

    let slow = Step::After(Duration::from_millis(100));
    provider.behave_for(&test.name, "desk-01", Behaviour { infrastructure: slow, ..stuck.clone() });
    order.runs().await;

    order.machine().delete("desk-01", &DeleteParams::default()).await.unwrap();
    eventually("the infrastructure hangs in deletion", SOON, async || {
        let object = order.infrastructure().get("desk-01").await.map_err(|error| json!(error.to_string()))?;
        if object.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err(json!(object)) }
    })
    .await;
    provider.behave_for(
        &test.name,
        "desk-01",
        Behaviour { removal: Removal::LeavingNodeAfter(Duration::ZERO), ..Behaviour::default() },
    );
    order.is_gone().await;
    assert!(nodes_of(&test.name, testbed.client()).await.is_empty(), "Cluster API deletes the Node it was left");
    test.close().await;
}

#[tokio::test]
async fn what_no_machine_owns_is_left_alone() {
    let testbed = shared().await;
    let test = testbed.namespace("no owner").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let orphan = Order::new(&test, "orphan", Version::V1Beta2);
    orphan.place_without_machine().await;
    // By the time that a later order is carried out, the provider has had its chance.
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    order.runs().await;
    for object in [orphan.bootstrap(), orphan.infrastructure()] {
        let object = object.get("orphan").await.unwrap();
        assert_eq!(object.data["status"], Value::Null);
        assert_eq!(object.metadata.finalizers, None);
    }
    test.close().await;
}

#[tokio::test]
async fn a_pod_is_scheduled_onto_a_joined_node_runs_and_goes() {
    let testbed = shared().await;
    let test = testbed.namespace("pods").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let order = Order::new(&test, "desk-01", Version::V1Beta2);
    order.place("edge").await;
    let node = order.runs().await;

    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "work" },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": node },
            "containers": [{ "name": "main", "image": "none" }],
        },
    }))
    .unwrap();
    let pods: Api<Pod> = test.api();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("the Pod runs", SOON, async || {
        let pod = json!(pods.get("work").await.map_err(|error| json!(error.to_string()))?);
        if pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] == json!(node) { Ok(()) } else { Err(pod) }
    })
    .await;
    pods.delete("work", &DeleteParams::default()).await.unwrap();
    eventually("the Pod is gone", SOON, async || matches!(pods.get_opt("work").await, Ok(None))).await;
    test.close().await;
}

#[tokio::test]
async fn a_node_joins_the_workload_cluster_and_not_the_management_cluster() {
    let workload = ControlPlane::start(ControlPlaneOptions::named("workload")).await.unwrap();
    let _kwok = Kwok::start(&workload).await.unwrap();
    let testbed = shared().await;
    let test = testbed.namespace("elsewhere").await;
    testbed.cluster_on(&workload, &test, "edge").await.unwrap();
    let order = Order::new(&test, "desk-01", Version::V1Beta1);
    order.place("edge").await;
    let node = order.runs().await;

    let there: Api<Node> = Api::all(workload.client());
    eventually("KWOK makes the Node ready", SOON, async || {
        let node = there.get(&node).await.map_err(|error| json!(error.to_string()))?;
        let status = json!(node.status);
        if condition(&status, "Ready")["status"] == "True" { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(nodes_of(&test.name, testbed.client()).await.is_empty());
    order.machine().delete("desk-01", &DeleteParams::default()).await.unwrap();
    order.is_gone().await;
    assert!(there.get_opt(&node).await.unwrap().is_none());
    test.close().await;
}

async fn status_of(order: &Order<'_>) -> Result<Value, Value> {
    let machine = order.machine().get("desk-01").await.map_err(|error| json!(error.to_string()))?;
    Ok(machine.data["status"].clone())
}

fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

/// Nodes are cluster-scoped: those of a test are known by their names.
async fn nodes_of(namespace: &str, client: kube::Client) -> Vec<String> {
    let nodes: Api<Node> = Api::all(client);
    let all = nodes.list(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter_map(|node| node.metadata.name).filter(|name| name.starts_with(namespace)).collect()
}
