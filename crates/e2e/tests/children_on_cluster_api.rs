//! The objects that the planner builds for a ScheduledMachine work with the real Cluster API: its webhooks accept them, the
//! Machine runs, and the values of the template are stored.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use fivespot_e2e::TIMEOUT;
use fivespot_planner::children::{self, MachineVersion, Owner};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{TestNamespace, shared};
use fivespot_validation::manifest;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const MANIFEST: &str = "
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata: {name: desk-01}
spec:
  clusterName: edge
  schedule: {daysOfWeek: [mon-sun], hoursOfDay: [\"0-23\"]}
  bootstrapSpec: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: K0sWorkerConfig, spec: {}}
  infrastructureSpec:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: RemoteMachine
    spec: {address: 192.168.1.100}
  gracefulShutdownTimeout: 10m
  nodeDrainTimeout: 90s
  machineTemplate:
    labels: {node.cluster.x-k8s.io/pool: desktops, team: research}
    annotations: {example.com/owner: lab 4}
    version: v1.30.0+k0s.0
    failureDomain: building-7
";

fn api(test: &TestNamespace, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = object["kind"].as_str().unwrap();
    test.dynamic_api(&ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

async fn create_and_delete(version: MachineVersion) {
    let testbed = shared().await;
    let test = testbed.namespace(&format!("children {}", version.as_str())).await;
    testbed.cluster(&test, "edge").await.unwrap();
    let valid = manifest::validate(&fivespot_api::crd(), &serde_saphyr::from_str(MANIFEST).unwrap()).unwrap();
    let owner = Owner { name: "desk-01", namespace: &test.name, uid: "00000000-0000-0000-0000-000000000001" };
    let built = children::build(owner, &valid.spec, &(&valid.object.spec).into(), version);
    let mut manifests: [Value; 3] =
        [&built.bootstrap, &built.infrastructure, &built.machine].map(|json| serde_json::from_str(json).unwrap());
    // The owner does not exist, so garbage collection would delete its children.
    for child in &mut manifests {
        child["metadata"].as_object_mut().unwrap().remove("ownerReferences").unwrap();
        let object: DynamicObject = serde_json::from_value(child.clone()).unwrap();
        api(&test, child).create(&PostParams::default(), &object).await.unwrap();
    }

    let machines = api(&test, &manifests[2]);
    let machine = eventually("the Machine runs", TIMEOUT, async || {
        let machine = machines.get("desk-01-machine").await.map_err(|error| json!(error.to_string()))?;
        if machine.data["status"]["phase"] == "Running" { Ok(machine) } else { Err(machine.data) }
    })
    .await;
    assert_eq!(machine.data["spec"]["version"], "v1.30.0+k0s.0");
    assert_eq!(machine.data["spec"]["failureDomain"], "building-7");
    let (drain, volumes, deletion) = match version {
        MachineVersion::V1Beta2 => (
            "/deletion/nodeDrainTimeoutSeconds",
            "/deletion/nodeVolumeDetachTimeoutSeconds",
            "/deletion/nodeDeletionTimeoutSeconds",
        ),
        MachineVersion::V1Beta1 => ("/nodeDrainTimeout", "/nodeVolumeDetachTimeout", "/nodeDeletionTimeout"),
    };
    let field = |pointer: &str| machine.data["spec"].pointer(pointer).cloned();
    let expected = match version {
        MachineVersion::V1Beta2 => [json!(90), json!(600), json!(10)],
        MachineVersion::V1Beta1 => [json!("1m30s"), json!("10m0s"), json!("10s")],
    };
    assert_eq!([field(drain), field(volumes), field(deletion)], expected.map(Some));
    let labels = machine.metadata.labels.unwrap();
    assert_eq!(labels["team"], "research");
    assert_eq!(labels["cluster.x-k8s.io/cluster-name"], "edge");
    assert_eq!(labels["5spot.finos.org/scheduled-machine"], "desk-01");
    assert_eq!(machine.metadata.annotations.unwrap()["example.com/owner"], "lab 4");
    machines.delete("desk-01-machine", &kube::api::DeleteParams::default()).await.unwrap();
    eventually("the Machine is deleted", TIMEOUT, async || {
        machines.get_opt("desk-01-machine").await.unwrap().is_none()
    })
    .await;
    test.close().await;
}

#[tokio::test]
async fn v1beta2_machine_runs_with_all_template_values() {
    create_and_delete(MachineVersion::V1Beta2).await;
}

#[tokio::test]
async fn v1beta1_machine_runs_with_all_template_values() {
    create_and_delete(MachineVersion::V1Beta1).await;
}
