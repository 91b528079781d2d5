//! Kubeconfigs: the one that Cluster API keeps, none, and some that nobody should trust.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::process::Signal;
use fivespot_testbed::redirector::Redirector;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{FaultProxy, TestNamespace, allow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, always, condition, never, testbed};

pub(crate) async fn write_kubeconfig(test: &TestNamespace, text: &str) {
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
async fn a_kubeconfig_that_may_not_do_enough_is_told_and_causes_no_storm() {
    let testbed = testbed().await;
    let test = testbed.namespace("too little").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let nodes_only = allow("", &["nodes"], &["get", "list", "watch", "patch"]);
    let little = test.cluster_wide_account("little", vec![nodes_only]).await.unwrap();

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

#[tokio::test]
async fn a_kubeconfig_that_is_taken_away_is_missed_and_the_next_one_is_taken() {
    let testbed = testbed().await;
    let test = testbed.namespace("replaced").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let through = |proxy: &FaultProxy| {
        let access = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap();
        access.through(proxy).kubeconfig()
    };
    let first = FaultProxy::start(testbed.control_plane()).unwrap();
    write_kubeconfig(&test, &through(&first)).await;
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let running = desk.runs().await;

    // The Secret goes first, then the way that it described.
    let secrets = test.api::<Secret>();
    let mut secret = secrets.get("edge-kubeconfig").await.unwrap();
    secrets.delete("edge-kubeconfig", &DeleteParams::default()).await.unwrap();
    drop(first);
    let told = desk.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
    assert!(told.message.as_ref().unwrap().contains("edge-kubeconfig is gone"), "{told:#?}");
    assert_eq!((told.phase, told.node_ref), (Some(Phase::Active), running.node_ref));

    let second = FaultProxy::start(testbed.control_plane()).unwrap();
    (secret.metadata.resource_version, secret.metadata.uid) = (None, None);
    secret.data.as_mut().unwrap().insert("value".to_owned(), ByteString(through(&second).into_bytes()));
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    desk.runs().await;
    desk.pod("web", &json!({})).await;
    desk.reschedule(&never()).await;
    desk.reaches(Phase::Inactive).await;
    let written = second.writes();
    assert!(written.iter().any(|it| it.path.ends_with("/eviction")), "{written:#?}");
    test.close().await;
}

async fn rules_of(test: &TestNamespace, role: &str) -> Vec<PolicyRule> {
    let role = Api::<ClusterRole>::all(test.client.clone()).get(role).await.unwrap();
    role.rules.unwrap()
}

#[tokio::test]
async fn a_kubeconfig_that_may_not_be_read_is_told_with_the_binding_that_is_missing() {
    let testbed = testbed().await;
    let test = testbed.namespace("not given").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let access = test.cluster_wide_account("tied", rules_of(&test, "5spot-controller").await).await.unwrap();
    let _controller = Controller::start_as(testbed, &access, &["--namespace", &test.name]);
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let told = desk.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
    let message = told.message.unwrap();
    let advice = format!(
        "bind ClusterRole 5spot-workload-access to the controller's ServiceAccount, in namespace {}",
        test.name
    );
    assert!(message.contains(&advice), "{message}");

    // As the hardened overlay gives it, for the account of this test.
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "5spot-workload-access" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "5spot-workload-access" },
        "subjects": [{ "kind": "ServiceAccount", "name": "tied", "namespace": test.name }],
    }))
    .unwrap();
    test.api::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn a_management_cluster_that_does_not_show_its_nodes_is_told() {
    let testbed = testbed().await;
    let test = testbed.namespace("no nodes").await;
    testbed.cluster(&test, "edge").await.unwrap();
    test.api::<Secret>().delete("edge-kubeconfig", &DeleteParams::default()).await.unwrap();
    let mut rules =
        [rules_of(&test, "5spot-controller").await, rules_of(&test, "5spot-workload-access").await].concat();
    rules.retain(|it| it.resources.as_ref().is_some_and(|it| *it != ["nodes"]));
    let access = test.cluster_wide_account("blind", rules).await.unwrap();
    let mut blind = Controller::start_as(testbed, &access, &["--namespace", &test.name]);
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let told = desk.until("told", |it| condition(it, "MachineReady").1 == "WorkloadClusterUnreachable").await;
    let message = told.message.unwrap();
    assert!(message.contains("nodes is forbidden"), "{message}");
    blind.signal(Signal::TERM);
    blind.ended().await;
    let _controller = Controller::start_in(testbed, &test).await;
    desk.runs().await;
    test.close().await;
}
