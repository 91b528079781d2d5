//! Installs the product with the documented kubectl and Helm commands on a real API server: pods are admitted, scheduled,
//! and can be evicted.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{EvictParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::install_docs::Shell;
use crate::monitoring;
use crate::render::kustomize;

const NAMESPACE: &str = "5spot-system";

/// A cluster with one simulated node.
async fn start_cluster(name: &str) -> (ControlPlane, Kwok) {
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

async fn pods(client: &Client) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().labels("app.kubernetes.io/component=controller");
    let mut pods = pods.list(&params).await.unwrap().items;
    pods.retain(|it| it.metadata.deletion_timestamp.is_none());
    pods
}

/// The PodDisruptionBudget allows the eviction of a pod, and the StatefulSet replaces it.
async fn assert_evictable(client: &Client) {
    let before = pods(client).await.pop().unwrap();
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the pod is evicted", TIMEOUT, async || {
        // The disruption controller observes that the pod is ready with a delay.
        api.evict(&before.name_any(), &EvictParams::default()).await
    })
    .await;
    eventually("another pod is scheduled", TIMEOUT, async || {
        pods(client).await.iter().any(|it| it.uid() != before.uid() && it.spec.as_ref().unwrap().node_name.is_some())
    })
    .await;
}

/// A dry-run create of the agent's pod, which needs host access. Uses the `default` ServiceAccount, because the agent's may
/// not exist yet.
async fn create_agent_pod(client: &Client) -> Result<(), kube::Error> {
    let shipped = kustomize("deploy/node-agent");
    let mut pod = shipped["DaemonSet 5spot-system/5spot-reclaim-agent"]["spec"]["template"].clone();
    pod["metadata"]["generateName"] = "agent-".into();
    pod["spec"]["serviceAccountName"] = "default".into();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&params, &pod).await.map(drop)
}

/// Pod Security rejects the agent's pod.
async fn assert_restricted(client: &Client) {
    let result = create_agent_pod(client).await.map_err(|error| error.to_string());
    let rejected = result.as_ref().is_err_and(|error| error.contains("violates PodSecurity \"restricted"));
    assert!(rejected, "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_only() {
    let options = ControlPlaneOptions::named("workload").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    Shell::new(&plane).run_section("In a workload cluster");
    create_agent_pod(&plane.client()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_kubectl() {
    let (plane, _kwok) = start_cluster("kubectl").await;
    let (shell, client) = (Shell::new(&plane), plane.client());
    shell.run_section("With kubectl");
    let admitted = pods(&client).await.pop().unwrap();
    assert_eq!(admitted.spec.as_ref().unwrap().priority, Some(1_000_000));
    assert_evictable(&client).await;

    // The namespace enforces the restricted level, until its label is changed for the node agent.
    assert_restricted(&client).await;
    shell.run_section("In the cluster of the controller");
    create_agent_pod(&client).await.unwrap();
    shell.run("kubectl apply -k deploy/controller");
    assert_restricted(&client).await;

    shell.run("kubectl create namespace team-a");
    let printed = shell.run_section("For several teams");
    assert!(printed[3].contains("rolebinding.rbac.authorization.k8s.io/5spot-workload-access created"), "{printed:?}");
    let remaining = shell.run("kubectl get clusterroles,clusterrolebindings -o name");
    assert!(remaining.contains("clusterrolebinding.rbac.authorization.k8s.io/5spot-controller"), "{remaining}");
    assert!(!remaining.contains("5spot-management-nodes"), "{remaining}");
    assert!(!remaining.contains("clusterrolebinding.rbac.authorization.k8s.io/5spot-workload-access"), "{remaining}");
    monitoring::install_operator_crds(&plane).await;
    shell.run_section("Monitoring");
    shell.run("kubectl -n 5spot-system rollout status statefulset/5spot-controller");
    let monitors =
        shell.run("kubectl -n 5spot-system get servicemonitors,prometheusrules -l release=prometheus -o name");
    assert_eq!(monitors.lines().count(), 2, "{monitors}");

    // No controller runs in these simulated pods, so the object has no finalizer. The controller's own tests cover the
    // removal of its finalizer.
    shell.run("kubectl apply -f examples/business-hours.yaml");
    let printed = shell.run_section("Uninstall");
    assert!(printed[0].contains("\"business-hours-worker\" deleted"), "{printed:?}");
    assert!(pods(&client).await.is_empty());
    assert_eq!(crd_deleting(&client).await, None);
}

/// Whether the CRD is being deleted; `None` if it does not exist.
async fn crd_deleting(client: &Client) -> Option<bool> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = crds.get_opt("scheduledmachines.5spot.finos.org").await.unwrap();
    found.map(|it| it.metadata.deletion_timestamp.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_helm() {
    let (plane, _kwok) = start_cluster("helm").await;
    let (shell, client) = (Shell::new(&plane), plane.client());
    let printed = shell.run_section("With Helm");
    assert!(printed[0].contains("is installed in namespace 5spot-system"), "{printed:?}");
    shell.run("kubectl -n 5spot-system rollout status statefulset/5spot-controller");
    assert_evictable(&client).await;

    // The release notes print the command that changes the label.
    let notes = shell.run("helm upgrade 5-spot charts/5-spot -n 5spot-system --set nodeAgent.enabled=true");
    let label = notes.lines().find(|it| it.contains("pod-security.kubernetes.io/enforce=privileged")).unwrap();
    shell.run(label);

    shell.run("helm uninstall 5-spot -n 5spot-system --wait");
    assert_eq!(crd_deleting(&client).await, Some(false), "the CRD and all objects are kept");
    let stateful_sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(stateful_sets.get_opt("5spot-controller").await.unwrap().is_none());

    // The same release adopts the CRD again; another release only after the ownership is transferred.
    shell.run("helm install 5-spot charts/5-spot -n 5spot-system");
    shell.run("helm uninstall 5-spot -n 5spot-system --wait");
    let handover = crate::install_docs::commands("A CRD that was there before");
    let error = shell.run_failing(handover.last().unwrap());
    assert!(error.contains("invalid ownership metadata"), "{error}");
    shell.run_section("A CRD that was there before");
    shell.run("helm uninstall machines -n 5spot-system --wait");

    // Without a controller, a finalizer blocks the deletion of the CRD.
    shell.run("kubectl apply -f examples/business-hours.yaml");
    let set_finalizers = |list: &str| {
        let patch = format!("{{\"metadata\":{{\"finalizers\":{list}}}}}");
        shell.run(&format!("kubectl patch scheduledmachine business-hours-worker --type=merge -p '{patch}'"));
    };
    set_finalizers("[\"5spot.finos.org/scheduledmachine\"]");
    let error = shell.run_failing("kubectl delete -f deploy/crds/scheduledmachine.yaml --timeout=5s");
    assert!(error.contains("timed out waiting"), "{error}");
    assert_eq!(crd_deleting(&client).await, Some(true));
    set_finalizers("null");
    eventually("the CRD is deleted", TIMEOUT, async || crd_deleting(&client).await.is_none()).await;
}
