//! The clusters that machines join: another API server, one that hangs, and kubeconfigs that nobody should trust.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::kwok::Kwok;
use fivespot_testbed::process::Signal;
use fivespot_testbed::redirector::Redirector;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, TestNamespace};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, budget, condition, never, pod_on, testbed};

async fn workload(name: &str) -> (ControlPlane, Kwok) {
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
    desk.create(&always(), &json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })).await;
    let there: Api<Node> = Api::all(elsewhere.client());
    let running = desk.runs().await;
    let node = there.get(&desk.node_name()).await.unwrap();
    assert_eq!(running.node_ref.unwrap().uid, node.metadata.uid);

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
    desk.reaches(Phase::Inactive).await;
    assert_eq!(desk.children().await, (false, false, false));
    assert!(there.get_opt(&desk.node_name()).await.unwrap().is_none());
    let pods: Api<Pod> = Api::namespaced(elsewhere.client(), "team");
    assert!(pods.get_opt("web").await.unwrap().is_none());
    let namesake = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_ne!(namesake.spec.unwrap().unschedulable, Some(true));
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
    test.close().await;
}

async fn write_kubeconfig(test: &TestNamespace, text: &str) {
    let patch = json!({ "data": { "value": ByteString(text.as_bytes().to_vec()) } });
    test.api::<Secret>().patch("edge-kubeconfig", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_to_be_trusted_is_told_and_a_better_one_is_taken() {
    let testbed = testbed().await;
    let test = testbed.namespace("kubeconfig").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let desk = Desk::new(&test, "desk-01");
    let mut controller = Controller::start_in(testbed, &test).await;
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    let secret = test.api::<Secret>().get("edge-kubeconfig").await.unwrap();
    let good = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();

    // One that would run a program; one whose server accepts and says nothing; one that sends the token elsewhere.
    let mut plugin: serde_json::Value = serde_json::from_str(&good).unwrap();
    plugin["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
    } });
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut hanging: serde_json::Value = serde_json::from_str(&good).unwrap();
    hanging["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", silent.local_addr().unwrap()));
    let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", elsewhere.local_addr().unwrap());
    let redirector = Redirector::start(testbed.control_plane(), &target).await.unwrap();
    let mut redirected: serde_json::Value = serde_json::from_str(&good).unwrap();
    redirected["clusters"][0]["cluster"]["server"] = json!(redirector.server());
    for (bad, told) in [
        (plugin.to_string(), "exec is not allowed"),
        (hanging.to_string(), "did not answer"),
        (redirected.to_string(), "cannot be used"),
    ] {
        controller.signal(Signal::TERM);
        controller.ended().await;
        write_kubeconfig(&test, &bad).await;
        controller = Controller::start_in(testbed, &test).await;
        let status = desk.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
        assert!(status.message.as_ref().unwrap().contains(told), "{status:#?}");
        assert_eq!(status.phase, Some(Phase::Active));
        // What was known of the Node is not forgotten because nobody can look.
        assert!(status.node_ref.is_some());
        write_kubeconfig(&test, &good).await;
        desk.runs().await;
    }
    let followed = tokio::time::timeout(Duration::from_millis(100), elsewhere.accept()).await;
    assert!(followed.is_err(), "a redirect was followed");
    test.close().await;
}

#[tokio::test]
async fn without_a_kubeconfig_the_management_cluster_is_taken_unless_that_is_forbidden() {
    let testbed = testbed().await;
    let test = testbed.namespace("no kubeconfig").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let desk = Desk::new(&test, "desk-01");
    let mut controller = Controller::start_in(testbed, &test).await;
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    controller.signal(Signal::TERM);
    controller.ended().await;
    let secrets = test.api::<Secret>();
    let secret = secrets.get("edge-kubeconfig").await.unwrap();
    secrets.delete("edge-kubeconfig", &DeleteParams::default()).await.unwrap();

    let mut strict = Controller::start_with(testbed, &["--namespace", &test.name, "--require-kubeconfig"]).await;
    let status = desk.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
    assert!(status.message.as_ref().unwrap().contains("--require-kubeconfig"), "{status:#?}");
    strict.signal(Signal::TERM);
    strict.ended().await;

    let _controller = Controller::start_in(testbed, &test).await;
    desk.runs().await;
    desk.pod("web", &json!({})).await;
    desk.reschedule(&never()).await;
    // Under the permissions that are shipped, in the management cluster itself.
    eventually("the Node is drained", SOON, async || test.api::<Pod>().get_opt("web").await.unwrap().is_none()).await;
    let mut again = secret;
    again.metadata = kube::core::ObjectMeta {
        name: again.metadata.name,
        labels: again.metadata.labels,
        ..kube::core::ObjectMeta::default()
    };
    secrets.create(&PostParams::default(), &again).await.unwrap();
    desk.reaches(Phase::Inactive).await;
    test.close().await;
}

#[tokio::test]
async fn a_node_that_two_machines_claim_is_nobodys() {
    let (test, _controller) = a_cluster("claimed twice").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })).await;
    let running = desk.runs().await;
    let reference = |kind: &str, group: &str| json!({ "apiGroup": group, "kind": kind, "name": "theirs" });
    let mut other = kube::api::DynamicObject::new("other", &crate::fixtures::machine_resource()).data(json!({ "spec": {
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
    desk.until("its own again", |it| it.node_ref.is_some()).await;
    test.close().await;
}

#[tokio::test]
async fn a_kubeconfig_that_may_not_do_enough_is_told_and_causes_no_storm() {
    let testbed = testbed().await;
    let test = testbed.namespace("too little").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let role = format!("{}-nodes-only", test.name);
    let manifest = json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "little", "namespace": test.name } },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": role },
            "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"] }],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": "little", "namespace": test.name }],
        },
    ] });
    let file = testbed.control_plane().run_dir().path().join("too-little.json");
    std::fs::write(&file, manifest.to_string()).unwrap();
    testbed.control_plane().apply(&file).await.unwrap();
    let little = testbed.control_plane().service_account(&test.name, "little").await.unwrap();

    let desk = Desk::new(&test, "desk-01");
    let mut controller = Controller::start_in(testbed, &test).await;
    desk.create(&always(), &json!({ "nodeDrainTimeout": "25s" })).await;
    desk.runs().await;
    controller.signal(Signal::TERM);
    controller.ended().await;
    write_kubeconfig(&test, &little.kubeconfig()).await;
    let _controller = Controller::start_in(testbed, &test).await;
    desk.runs().await;
    let mark = testbed.audit().mark();
    desk.reschedule(&never()).await;
    desk.until("told", |it| it.message.as_ref().is_some_and(|it| it.contains("pods is forbidden"))).await;
    // When its time is up the machine goes all the same.
    desk.reaches(Phase::Inactive).await;
    testbed.audit().caught_up(&test.client).await;
    let asked = testbed.audit().since(mark).by(&format!("system:serviceaccount:{}:little", test.name));
    assert!(asked.len() < 100, "{}", asked.len());
    test.close().await;
}
