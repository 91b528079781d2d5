//! A day under the hardened overlay, as it is installed: Secrets only where a tenant gives them, and nothing of the Nodes
//! and pods of the management cluster.

use fivespot_api::Phase;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlaneOptions, TestNamespace, Testbed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::fixtures::{CONTROLLER, Controller, Desk, SOON, always, condition, never, pod_on, root};
use crate::workload::workload;

async fn install(testbed: &Testbed) -> Access {
    for path in ["deploy/crds/scheduledmachine.yaml", "deploy/admission", "deploy/overlays/hardened"] {
        testbed.control_plane().apply(&root().join(path)).await.unwrap();
    }
    testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap()
}

/// What the overlay starts the controller with.
async fn arguments(testbed: &Testbed) -> Vec<String> {
    let deployments: Api<Deployment> = Api::namespaced(testbed.client(), "5spot-system");
    let pod = deployments.get("5spot-controller").await.unwrap().spec.unwrap().template.spec.unwrap();
    pod.containers.into_iter().next().unwrap().args.unwrap()
}

/// A namespace is given to the controller, as the overlay says, and the API server knows it.
async fn give(testbed: &Testbed, test: &TestNamespace, controller: &Access) {
    let mut kubectl = testbed.control_plane().kubectl().unwrap();
    kubectl.args(["apply", "-n", &test.name, "-k"]).arg(root().join("deploy/overlays/hardened/tenant"));
    let given = kubectl.output().unwrap();
    assert!(given.status.success(), "{}", String::from_utf8_lossy(&given.stderr));
    let secrets: Api<Secret> = Api::namespaced(controller.client(), &test.name);
    eventually("the binding counts", SOON, async || secrets.get("edge-kubeconfig").await.map(drop)).await;
    testbed.audit().caught_up(&test.client).await;
}

#[tokio::test]
async fn a_machine_lives_its_day_with_what_a_tenant_gave_and_before_that_is_told_what_is_missing() {
    let (elsewhere, _kwok) = workload("hardened-workload").await;
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("hardened")).await.unwrap();
    let access = install(&testbed).await;
    let test = testbed.namespace("team").await;
    testbed.cluster_on(&elsewhere, &test, "edge").await.unwrap();
    let arguments = arguments(&testbed).await;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let _controller = Controller::start_as(&testbed, &access, &arguments);

    let first = Desk::new(&test, "desk-01");
    first.create(&always(), &json!({})).await;
    let told = first.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
    let message = told.message.unwrap();
    let advice = format!(
        "may not read Secret {0}/edge-kubeconfig: bind ClusterRole 5spot-workload-access to the controller's \
         ServiceAccount, in namespace {0}",
        test.name
    );
    assert!(message.contains(&advice), "{message}");
    assert_eq!(told.phase, Some(Phase::Active));

    give(&testbed, &test, &access).await;
    let mark = testbed.audit().mark();
    first.runs().await;
    let desk = Desk::new(&test, "desk-02");
    let taint = json!({ "key": "example.com/lent", "effect": "NoSchedule" });
    desk.create(&always(), &json!({ "nodeTaints": [taint] })).await;
    desk.runs().await;
    desk.until("tainted", |it| condition(it, "NodeTainted").1 == "Applied").await;
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    Api::all(elsewhere.client()).create(&PostParams::default(), &team).await.unwrap();
    pod_on(&elsewhere.client(), "team", ("web", &desk.node_name()), &json!({})).await;
    desk.reschedule(&never()).await;
    desk.reaches(Phase::Inactive).await;
    assert_eq!(desk.children().await, (false, false, false));
    let pods: Api<Pod> = Api::namespaced(elsewhere.client(), "team");
    assert!(pods.get_opt("web").await.unwrap().is_none());
    first.edit(&json!({ "spec": { "killSwitch": true } })).await;
    first.reaches(Phase::Terminated).await;
    first.delete().await;
    first.is_gone().await;

    elsewhere.audit().caught_up(&elsewhere.client()).await;
    let evicted = elsewhere.audit().entries().on("pods/eviction").succeeded();
    assert!(evicted.0.iter().any(|it| it.name == "web" && it.user_agent.starts_with("5spot/")), "{evicted:#?}");
    testbed.audit().caught_up(&test.client).await;
    let asked = testbed.audit().since(mark).by(CONTROLLER);
    let read = asked.clone().on("secrets").in_namespace(&test.name).succeeded();
    assert!(read.0.iter().any(|it| it.verb == "get" && it.user_agent.starts_with("5spot/")), "{read:#?}");
    let refused = asked.clone().filter(|it| it.code == 403);
    assert!(refused.is_empty(), "{refused:#?}");
    // Nothing of the Nodes and pods here was even asked for.
    let here = testbed.audit().entries().by(CONTROLLER).filter(|it| matches!(it.resource.as_str(), "nodes" | "pods"));
    assert!(here.is_empty(), "{here:#?}");
    test.close().await;
}
