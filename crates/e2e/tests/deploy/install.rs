//! Installing as the guide says, with kubectl and with Helm, on a real API server: the pods are made, run, and can be
//! evicted.

use std::time::Duration;

use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{EvictParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::guide::Shell;
use crate::monitoring;
use crate::rendered::kustomize;

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

/// What becomes of a pod of the agent's. Its account is not there yet, and is not what is asked about.
async fn asking_for_the_host(client: &Client) -> Result<(), String> {
    let shipped = kustomize("deploy/node-agent");
    let mut pod = shipped["DaemonSet 5spot-system/5spot-reclaim-agent"]["spec"]["template"].clone();
    pod["metadata"]["generateName"] = "agent-".into();
    pod["spec"]["serviceAccountName"] = "default".into();
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    // One that is admitted is not kept.
    let params = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&params, &pod).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_alone() {
    let options = ControlPlaneOptions::named("workload").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    Shell::new(&plane).follow("In a workload cluster");
    asking_for_the_host(&plane.client()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_kubectl() {
    let (plane, _kwok) = a_cluster("kubectl").await;
    let (shell, client) = (Shell::new(&plane), plane.client());
    shell.follow("With kubectl");
    let admitted = pods(&client).await.pop().unwrap();
    assert_eq!(admitted.spec.as_ref().unwrap().priority, Some(1_000_000));
    can_be_drained(&client).await;

    // The namespace really admits nothing that asks for more, until it is told to for the node agent.
    let as_restricted = "violates PodSecurity \"restricted";
    let refused = asking_for_the_host(&client).await;
    assert!(refused.as_ref().is_err_and(|it| it.contains(as_restricted)), "{refused:?}");
    shell.follow("In the cluster of the controller");
    asking_for_the_host(&client).await.unwrap();
    shell.run("kubectl apply -k deploy/controller");
    let refused = asking_for_the_host(&client).await;
    assert!(refused.as_ref().is_err_and(|it| it.contains(as_restricted)), "{refused:?}");

    shell.run("kubectl create namespace team-a");
    let said = shell.follow("For several teams");
    assert!(said[3].contains("rolebinding.rbac.authorization.k8s.io/5spot-workload-access created"), "{said:?}");
    let left = shell.run("kubectl get clusterroles,clusterrolebindings -o name");
    assert!(left.contains("clusterrolebinding.rbac.authorization.k8s.io/5spot-controller"), "{left}");
    assert!(!left.contains("5spot-management-nodes"), "{left}");
    assert!(!left.contains("clusterrolebinding.rbac.authorization.k8s.io/5spot-workload-access"), "{left}");
    monitoring::install_operator_kinds(&plane).await;
    shell.follow("Monitoring");
    shell.run("kubectl -n 5spot-system rollout status deployment/5spot-controller");
    let monitors =
        shell.run("kubectl -n 5spot-system get servicemonitors,prometheusrules -l release=prometheus -o name");
    assert_eq!(monitors.lines().count(), 2, "{monitors}");

    // The programs in these pods are pretended: nobody puts a finalizer on the object, so it goes without a controller. That
    // a controller takes its finalizer off is tested with the controller.
    shell.run("kubectl apply -f examples/business-hours.yaml");
    let said = shell.follow("Uninstall");
    assert!(said[0].contains("\"business-hours-worker\" deleted"), "{said:?}");
    assert!(pods(&client).await.is_empty());
    assert_eq!(crd(&client).await, None);
}

/// The CRD, if it is there, and whether it is on its way out.
async fn crd(client: &Client) -> Option<bool> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = crds.get_opt("scheduledmachines.5spot.finos.org").await.unwrap();
    found.map(|it| it.metadata.deletion_timestamp.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_helm() {
    let (plane, _kwok) = a_cluster("helm").await;
    let (shell, client) = (Shell::new(&plane), plane.client());
    let said = shell.follow("With Helm");
    assert!(said[0].contains("is installed in namespace 5spot-system"), "{said:?}");
    shell.run("kubectl -n 5spot-system rollout status deployment/5spot-controller");
    can_be_drained(&client).await;

    // As is said in the notes of a release with the node agent.
    let notes = shell.run("helm upgrade 5-spot charts/5-spot -n 5spot-system --set nodeAgent.enabled=true");
    let label = notes.lines().find(|it| it.contains("pod-security.kubernetes.io/enforce=privileged")).unwrap();
    shell.run(label);

    shell.run("helm uninstall 5-spot -n 5spot-system --wait");
    assert_eq!(crd(&client).await, Some(false), "the CRD, and all objects, stay");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(deployments.get_opt("5spot-controller").await.unwrap().is_none());

    // The same release takes the CRD up again, and another one only if it is handed over.
    shell.run("helm install 5-spot charts/5-spot -n 5spot-system");
    shell.run("helm uninstall 5-spot -n 5spot-system --wait");
    let handover = crate::guide::commands("A CRD that was there before");
    let refused = shell.try_run(handover.last().unwrap()).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    shell.follow("A CRD that was there before");
    shell.run("helm uninstall machines -n 5spot-system --wait");

    // Nobody is left to take a finalizer off.
    shell.run("kubectl apply -f examples/business-hours.yaml");
    let finalizer = |list: &str| {
        let patch = format!("{{\"metadata\":{{\"finalizers\":{list}}}}}");
        shell.run(&format!("kubectl patch scheduledmachine business-hours-worker --type=merge -p '{patch}'"));
    };
    finalizer("[\"5spot.finos.org/scheduledmachine\"]");
    let waiting = shell.try_run("kubectl delete -f deploy/crds/scheduledmachine.yaml --timeout=5s").unwrap_err();
    assert!(waiting.contains("timed out waiting"), "{waiting}");
    assert_eq!(crd(&client).await, Some(true));
    finalizer("null");
    eventually("the CRD goes", SOON, async || crd(&client).await.is_none()).await;
}
