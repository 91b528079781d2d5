//! The hardened overlay: the controller reads Secrets only where a tenant grants it, and neither Nodes nor pods of the
//! management cluster.

use fivespot_api::Phase;
use fivespot_testbed::{Access, ControlPlaneOptions, TestNamespace, Testbed};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::fixtures::{
    CONTROLLER_USER, Children, Controller, condition, create_pod, messages, never, repo_path, scheduled_machine,
    sent_by_controller, wait_for,
};
use crate::workload_clusters::start_workload_cluster;

async fn install(testbed: &Testbed) -> Access {
    for path in ["deploy/crds/scheduledmachine.yaml", "deploy/admission", "deploy/overlays/hardened"] {
        testbed.control_plane().apply(&repo_path(path)).await.unwrap();
    }
    testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap()
}

/// The arguments of the controller in the overlay's StatefulSet.
async fn controller_args(testbed: &Testbed) -> Vec<String> {
    let stateful_sets: Api<StatefulSet> = Api::namespaced(testbed.client(), "5spot-system");
    let pod = stateful_sets.get("5spot-controller").await.unwrap().spec.unwrap().template.spec.unwrap();
    pod.containers.into_iter().next().unwrap().args.unwrap()
}

/// Applies the overlay's tenant manifests to the namespace, and waits until the API server honours the binding.
async fn grant_access(testbed: &Testbed, ns: &TestNamespace, controller: &Access) {
    let mut kubectl = testbed.control_plane().kubectl().unwrap();
    kubectl.args(["apply", "-n", &ns.name, "-k"]).arg(repo_path("deploy/overlays/hardened/tenant"));
    let output = kubectl.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let secrets: Api<Secret> = Api::namespaced(controller.client(), &ns.name);
    wait_for("the binding is effective", async || secrets.get("edge-kubeconfig").await.map(drop)).await;
    testbed.audit().caught_up(&ns.client).await;
}

#[tokio::test]
async fn machines_run_after_tenant_grants_access() {
    let (workload, _kwok) = start_workload_cluster("hardened-workload").await;
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("hardened")).await.unwrap();
    let access = install(&testbed).await;
    let ns = testbed.namespace("team").await;
    testbed.cluster_on(&workload, &ns, "edge").await.unwrap();
    let args = controller_args(&testbed).await;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _controller = Controller::start_as(&testbed, &access, &args);

    let first = scheduled_machine(&ns, "desk-01").create().await;
    let status = first.wait_for_condition("MachineReady", ("Unknown", "WorkloadClusterUnreachable")).await;
    let message = status.message.unwrap();
    assert!(message.contains(&messages::kubeconfig_forbidden(&ns.name)), "{message}");
    assert_eq!(status.phase, Some(Phase::Active));

    grant_access(&testbed, &ns, &access).await;
    let mark = testbed.audit().mark();
    first.wait_until_running().await;
    let taint = json!({ "key": "example.com/lent", "effect": "NoSchedule" });
    let second = scheduled_machine(&ns, "desk-02").node_taints(&[taint]).create_running().await;
    second.wait_until("tainted", |status| condition(status, "NodeTainted").1 == "Applied").await;
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    Api::all(workload.client()).create(&PostParams::default(), &team).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(workload.client(), "team");
    create_pod(&pods, "web", &second.node_name(), &json!({})).await;
    second.set_schedule(&never()).await;
    second.wait_for_phase(Phase::Inactive).await;
    assert_eq!(second.children().await, Children::NONE);
    assert!(pods.get_opt("web").await.unwrap().is_none());
    first.set_kill_switch(true).await;
    first.wait_for_phase(Phase::Terminated).await;
    first.delete().await;
    first.wait_until_deleted().await;

    workload.audit().caught_up(&workload.client()).await;
    let evictions = workload.audit().entries().on("pods/eviction").succeeded().filter(sent_by_controller);
    assert!(evictions.0.iter().any(|it| it.name == "web"), "{evictions:#?}");
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER);
    let reads = requests.clone().on("secrets").in_namespace(&ns.name).succeeded().filter(sent_by_controller);
    assert!(reads.0.iter().any(|it| it.verb == "get"), "{reads:#?}");
    let forbidden = requests.filter(|it| it.code == 403);
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    // The controller has not even requested Nodes or pods of the management cluster.
    let requests = testbed.audit().entries().by(CONTROLLER_USER);
    let requests = requests.filter(|it| matches!(it.resource.as_str(), "nodes" | "pods"));
    assert!(requests.is_empty(), "{requests:#?}");
    ns.close().await;
}
