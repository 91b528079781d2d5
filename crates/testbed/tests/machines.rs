//! Machines of the real Cluster API with the simulated provider: creation, deletion, failure, and who writes their status.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fixtures;

use std::time::Duration;

use fivespot_testbed::control_plane::{CLUSTER_API, SIMULATED_PROVIDER};
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::provider::{Behaviour, Joining, Removal, Step, node_name, provider_id};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode, Testbed, shared};
use fixtures::{TIMEOUT, TestMachine, Version};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn create_and_delete(name: &str, version: Version) {
    let testbed = shared().await;
    let test = testbed.namespace(name).await;
    testbed.cluster(&test, "edge").await.unwrap();
    let machine = TestMachine::new(&test, "desk-01", version);
    machine.create("edge").await;

    let node = machine.await_running().await;
    assert_eq!(node, node_name(&test.name, "desk-01"));
    let nodes: Api<Node> = Api::all(test.client.clone());
    nodes.get(&node).await.unwrap();
    let finalizers = machine.machine_api().get("desk-01").await.unwrap().metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["machine.cluster.x-k8s.io".to_owned()]));

    machine.machine_api().delete("desk-01", &DeleteParams::default()).await.unwrap();
    machine.await_deleted().await;
    assert!(nodes.get_opt(&node).await.unwrap().is_none());
    test.close().await;
}

#[tokio::test]
async fn v1beta1_machine_runs_and_is_deleted() {
    create_and_delete("v1beta1", Version::V1Beta1).await;
}

#[tokio::test]
async fn v1beta2_machine_runs_and_is_deleted() {
    create_and_delete("v1beta2", Version::V1Beta2).await;
}

#[tokio::test]
async fn real_kubelet_becomes_the_node_of_a_machine() {
    if !RealNode::is_possible() {
        return;
    }
    let options = ControlPlaneOptions::named("real-machine").for_real_nodes();
    let testbed = Testbed::start_with_fleet(options).await.unwrap();
    let test = testbed.namespace("real kubelet").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let by_kubelet = Behaviour { joining: Joining::ByKubelet, ..Behaviour::default() };
    testbed.fleet().await.provider.behave_in(&test.name, by_kubelet);
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    let name = node_name(&test.name, "desk-01");
    let id = provider_id(&test.name, "desk-01");
    let node = RealNode::start(testbed.control_plane(), &name, &id).await.unwrap();
    assert_eq!(machine.await_running().await, name);

    machine.machine_api().delete("desk-01", &DeleteParams::default()).await.unwrap();
    machine.await_deleted().await;
    let nodes: Api<Node> = Api::all(test.client.clone());
    assert!(nodes.get_opt(&name).await.unwrap().is_none());
    node.stop().await;
}

#[tokio::test]
async fn only_cluster_api_writes_machine_status() {
    let testbed = shared().await;
    let test = testbed.namespace("who writes machines").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    machine.await_running().await;
    machine.machine_api().delete("desk-01", &DeleteParams::default()).await.unwrap();
    machine.await_deleted().await;

    testbed.audit().caught_up(&test.client).await;
    let here = testbed.audit().entries().in_namespace(&test.name).writes().succeeded();
    assert_eq!(here.clone().on("machines/status").users(), [CLUSTER_API]);
    assert_eq!(here.clone().on("machines").users(), ["admin", CLUSTER_API]);
    let by_admin: Vec<String> = here.clone().on("machines").by("admin").0.into_iter().map(|entry| entry.verb).collect();
    assert_eq!(by_admin, ["create", "delete"]);
    // The provider wrote its own kinds, and nothing of Cluster API.
    assert!(!here.clone().by(SIMULATED_PROVIDER).on("remotemachines/status").is_empty());
    assert!(here.by(SIMULATED_PROVIDER).filter(|entry| entry.group == "cluster.x-k8s.io").is_empty());
}

#[tokio::test]
async fn provider_has_no_permission_to_write_machines() {
    let testbed = shared().await;
    let test = testbed.namespace("forbidden").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    machine.await_running().await;

    let provider = testbed.control_plane().access(SIMULATED_PROVIDER).unwrap().client();
    let machines: Api<DynamicObject> = Api::namespaced_with(provider, &test.name, &machine.machine_resource());
    machines.get("desk-01").await.unwrap();
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null }, "status": { "phase": "Failed" } }));
    let errors = [
        machines.patch("desk-01", &PatchParams::default(), &patch).await.unwrap_err(),
        machines.patch_status("desk-01", &PatchParams::default(), &patch).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{error}");
    }
    test.close().await;
}

#[tokio::test]
async fn failure_is_reported_in_conditions_not_in_phase() {
    let testbed = shared().await;
    let test = testbed.namespace("failure").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let provider = &testbed.fleet().await.provider;
    let no_power = Step::Fail { reason: "CreateError".to_owned(), message: "no power".to_owned() };
    provider.behave_in(&test.name, Behaviour { infrastructure: no_power, ..Behaviour::default() });
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;

    let status = eventually("Cluster API reports the failure", TIMEOUT, async || {
        let status = status_of(&machine).await?;
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
async fn behaviour_can_change_while_a_machine_waits() {
    let testbed = shared().await;
    let test = testbed.namespace("never ready").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let provider = &testbed.fleet().await.provider;
    let stuck = Behaviour { infrastructure: Step::Never, removal: Removal::Never, ..Behaviour::default() };
    provider.behave_for(&test.name, "desk-01", stuck.clone());
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    eventually("the Machine waits for its infrastructure", TIMEOUT, async || {
        let status = status_of(&machine).await?;
        if condition(&status, "BootstrapConfigReady")["status"] == "True" { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(nodes_of(&test.name, testbed.client()).await.is_empty());

    let slow = Step::After(Duration::from_millis(100));
    provider.behave_for(&test.name, "desk-01", Behaviour { infrastructure: slow, ..stuck.clone() });
    machine.await_running().await;

    machine.machine_api().delete("desk-01", &DeleteParams::default()).await.unwrap();
    eventually("the infrastructure object is being deleted", TIMEOUT, async || {
        let object = machine.infrastructure_api().get("desk-01").await.map_err(|error| json!(error.to_string()))?;
        if object.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err(json!(object)) }
    })
    .await;
    provider.behave_for(
        &test.name,
        "desk-01",
        Behaviour { removal: Removal::LeavingNodeAfter(Duration::ZERO), ..Behaviour::default() },
    );
    machine.await_deleted().await;
    assert!(
        nodes_of(&test.name, testbed.client()).await.is_empty(),
        "Cluster API deletes the Node that the provider left"
    );
    test.close().await;
}

#[tokio::test]
async fn provider_ignores_objects_without_a_machine() {
    let testbed = shared().await;
    let test = testbed.namespace("no owner").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let orphan = TestMachine::new(&test, "orphan", Version::V1Beta2);
    orphan.create_without_machine().await;
    // Once a later machine runs, the provider has also processed the orphan.
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    machine.await_running().await;
    for object in [orphan.bootstrap_api(), orphan.infrastructure_api()] {
        let object = object.get("orphan").await.unwrap();
        assert_eq!(object.data["status"], Value::Null);
        assert_eq!(object.metadata.finalizers, None);
    }
    test.close().await;
}

#[tokio::test]
async fn pod_is_scheduled_runs_and_is_deleted() {
    let testbed = shared().await;
    let test = testbed.namespace("pods").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta2);
    machine.create("edge").await;
    let node = machine.await_running().await;

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
    eventually("the Pod runs", TIMEOUT, async || {
        let pod = json!(pods.get("work").await.map_err(|error| json!(error.to_string()))?);
        if pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] == json!(node) { Ok(()) } else { Err(pod) }
    })
    .await;
    pods.delete("work", &DeleteParams::default()).await.unwrap();
    eventually("the Pod is deleted", TIMEOUT, async || matches!(pods.get_opt("work").await, Ok(None))).await;
    test.close().await;
}

#[tokio::test]
async fn node_joins_the_workload_cluster_only() {
    let workload = ControlPlane::start(ControlPlaneOptions::named("workload")).await.unwrap();
    let _kwok = Kwok::start(&workload).await.unwrap();
    let testbed = shared().await;
    let test = testbed.namespace("workload cluster").await;
    testbed.cluster_on(&workload, &test, "edge").await.unwrap();
    let machine = TestMachine::new(&test, "desk-01", Version::V1Beta1);
    machine.create("edge").await;
    let node = machine.await_running().await;

    let workload_nodes: Api<Node> = Api::all(workload.client());
    eventually("the Node is Ready", TIMEOUT, async || {
        let node = workload_nodes.get(&node).await.map_err(|error| json!(error.to_string()))?;
        let status = json!(node.status);
        if condition(&status, "Ready")["status"] == "True" { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(nodes_of(&test.name, testbed.client()).await.is_empty());
    machine.machine_api().delete("desk-01", &DeleteParams::default()).await.unwrap();
    machine.await_deleted().await;
    assert!(workload_nodes.get_opt(&node).await.unwrap().is_none());
    test.close().await;
}

async fn status_of(machine: &TestMachine<'_>) -> Result<Value, Value> {
    let machine = machine.machine_api().get("desk-01").await.map_err(|error| json!(error.to_string()))?;
    Ok(machine.data["status"].clone())
}

fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

/// Names of a test's Nodes, which start with the namespace because Nodes are cluster-scoped.
async fn nodes_of(namespace: &str, client: kube::Client) -> Vec<String> {
    let nodes: Api<Node> = Api::all(client);
    let all = nodes.list(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter_map(|node| node.metadata.name).filter(|name| name.starts_with(namespace)).collect()
}
