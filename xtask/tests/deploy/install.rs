//! Installing, with kubectl and with Helm, on a real API server: the pods are made, run, and can be evicted.

use std::time::Duration;

use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{EvictParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::rendered::{chart, helm, root, succeeded};

const SOON: Duration = Duration::from_mins(5);
const NAMESPACE: &str = "5spot-system";

/// A cluster with a node that runs whatever it is given.
async fn a_cluster(name: &str) -> (ControlPlane, Kwok) {
    let options = ControlPlaneOptions::named(name).with_service_account_admission();
    let plane = ControlPlane::start(options).await.unwrap();
    let kwok = Kwok::start(&plane).await.unwrap();
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "node-1", "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } },
    }))
    .unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &node).await.unwrap();
    (plane, kwok)
}

async fn becomes_available(client: &Client) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the controller is available", SOON, async || {
        let status = deployments.get("5spot-controller").await.unwrap().status.unwrap_or_default();
        if status.available_replicas == Some(1) { Ok(()) } else { Err(json!(status)) }
    })
    .await;
}

async fn pods(client: &Client) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().labels("app.kubernetes.io/component=controller");
    let mut pods = pods.list(&params).await.unwrap().items;
    pods.retain(|it| it.metadata.deletion_timestamp.is_none());
    pods
}

/// The budget lets the only one go, and another takes its place.
async fn can_be_drained(client: &Client) {
    let before = pods(client).await.pop().unwrap();
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("it may be evicted", SOON, async || {
        // The disruption controller counts it a moment after it has become ready.
        api.evict(&before.name_any(), &EvictParams::default()).await.map_err(|error| error.to_string())
    })
    .await;
    eventually("there is another", SOON, async || {
        pods(client).await.iter().any(|it| it.uid() != before.uid() && it.spec.as_ref().unwrap().node_name.is_some())
    })
    .await;
}

#[tokio::test]
async fn with_kubectl() {
    let (plane, _kwok) = a_cluster("kubectl").await;
    // A warning, such as of a pod that the namespace does not admit, would fail this.
    for path in ["deploy/crds/scheduledmachine.yaml", "deploy/controller"] {
        plane.apply(&root().join(path)).await.unwrap();
    }
    let client = plane.client();
    becomes_available(&client).await;
    let admitted = pods(&client).await.pop().unwrap();
    assert_eq!(admitted.spec.as_ref().unwrap().priority, Some(1_000_000));
    can_be_drained(&client).await;

    // The namespace really admits nothing that asks for more.
    let mut greedy = Pod { spec: admitted.spec, ..Pod::default() };
    greedy.metadata.name = Some("greedy".to_owned());
    let spec = greedy.spec.as_mut().unwrap();
    (spec.node_name, spec.host_pid) = (None, Some(true));
    let refused = Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &greedy).await;
    assert!(refused.unwrap_err().to_string().contains("violates PodSecurity \"restricted"));

    // For a cluster of several teams, over what is there.
    let team = json!({ "metadata": { "name": "team-a" } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(team).unwrap()).await.unwrap();
    plane.apply(&root().join("deploy/overlays/hardened")).await.unwrap();
    let mut tenant = plane.kubectl().unwrap();
    tenant.args(["apply", "-n", "team-a", "-k"]).arg(root().join("deploy/overlays/hardened/tenant"));
    let said = succeeded(tenant.output().unwrap());
    assert!(said.contains("rolebinding.rbac.authorization.k8s.io/5spot-workload-access created"), "{said}");
    becomes_available(&client).await;
}

#[tokio::test]
async fn with_helm() {
    let (plane, _kwok) = a_cluster("helm").await;
    let kubeconfig = plane.kubeconfig_for(ADMIN).unwrap();
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = helm();
        command.args(arguments).args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(&kubeconfig);
        for directory in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(directory, home.path());
        }
        succeeded(command.output().unwrap())
    };
    let chart = chart();
    let chart = chart.to_str().unwrap();
    let notes = run(&["install", "a-release", chart, "--create-namespace", "--wait", "--timeout", "5m"]);
    assert!(notes.contains("is installed in namespace 5spot-system"), "{notes}");
    let client = plane.client();
    becomes_available(&client).await;
    can_be_drained(&client).await;

    // As is said in the notes of a release with the node agent.
    let notes = run(&["upgrade", "a-release", chart, "--set", "nodeAgent.enabled=true"]);
    let label = notes.lines().find(|it| it.contains("pod-security.kubernetes.io/enforce=privileged")).unwrap();
    let mut kubectl = plane.kubectl().unwrap();
    kubectl.args(label.split_whitespace().skip(1));
    succeeded(kubectl.output().unwrap());

    run(&["uninstall", "a-release", "--wait"]);
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.get("scheduledmachines.5spot.finos.org").await.expect("the CRD, and all objects, stay");
    assert!(Api::<Deployment>::namespaced(client, NAMESPACE).get_opt("5spot-controller").await.unwrap().is_none());
}
