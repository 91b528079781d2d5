//! Kubeconfig Secrets that are missing, unsafe, forbidden, or grant too little.

use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::hostile_server::untrusted_authority;
use fivespot_testbed::redirector::Redirector;
use fivespot_testbed::{FaultProxy, TestNamespace, allow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixtures::{
    Controller, TestMachine, create_pod, message_contains, messages, namespace_with_cluster, never, scheduled_machine,
    sent_by_controller, testbed, wait_for,
};
use crate::workload_clusters::start_workload_cluster;

const SECRET: &str = "edge-kubeconfig";

pub(crate) async fn write_kubeconfig(ns: &TestNamespace, kubeconfig: &str) {
    let patch = json!({ "data": { "value": ByteString(kubeconfig.as_bytes().to_vec()) } });
    ns.api::<Secret>().patch(SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn wait_until_unreachable(sm: &TestMachine<'_>) -> ScheduledMachineStatus {
    sm.wait_for_condition("MachineReady", ("Unknown", "WorkloadClusterUnreachable")).await
}

#[tokio::test]
async fn unsafe_kubeconfig_is_rejected_and_fixed_one_is_used() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("unsafe-kubeconfig").await;
    let mut controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    let secret = ns.api::<Secret>().get(SECRET).await.unwrap();
    let valid = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    let with_server = |server: String| {
        let mut kubeconfig: Value = serde_json::from_str(&valid).unwrap();
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        kubeconfig.to_string()
    };

    let mut exec_plugin: Value = serde_json::from_str(&valid).unwrap();
    exec_plugin["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
    } });
    let silent_server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = with_server(format!("https://{}", silent_server.local_addr().unwrap()));
    let redirect_target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/", redirect_target.local_addr().unwrap());
    let redirector = Redirector::start(testbed.control_plane(), &location).await.unwrap();
    let redirected = with_server(redirector.server());
    let closed_port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = with_server(format!("https://{closed_port}"));
    let mut untrusted: Value = serde_json::from_str(&valid).unwrap();
    untrusted["clusters"][0]["cluster"]["certificate-authority-data"] =
        json!(ByteString(untrusted_authority().unwrap().into_bytes()));
    for (kubeconfig, message) in [
        (refused, "connection refused"),
        (untrusted.to_string(), "TLS handshake failed"),
        (exec_plugin.to_string(), messages::EXEC_NOT_ALLOWED),
        (hanging, messages::CLUSTER_DID_NOT_RESPOND),
        (redirected, messages::CLUSTER_CANNOT_BE_ACCESSED),
    ] {
        controller.stop().await;
        write_kubeconfig(&ns, &kubeconfig).await;
        controller = Controller::start(testbed, &ns).await;
        let status = wait_until_unreachable(&sm).await;
        assert!(message_contains(&status, message), "{status:#?}");
        assert_eq!(status.phase, Some(Phase::Active));
        // The last known Node stays in the status while the cluster is unreachable.
        assert!(status.node_ref.is_some());
        write_kubeconfig(&ns, &valid).await;
        sm.wait_until_running().await;
    }
    let connection = tokio::time::timeout(Duration::from_millis(100), redirect_target.accept()).await;
    assert!(connection.is_err(), "the controller followed a redirect");
    ns.close().await;
}

#[tokio::test]
async fn missing_kubeconfig_means_management_cluster_unless_required() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("no-kubeconfig").await;
    let mut controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    controller.stop().await;
    let secrets = ns.api::<Secret>();
    let secret = secrets.get(SECRET).await.unwrap();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();

    let mut strict = Controller::start_with_args(testbed, &["--namespace", &ns.name, "--require-kubeconfig"]).await;
    let status = wait_until_unreachable(&sm).await;
    assert!(message_contains(&status, messages::KUBECONFIG_REQUIRED), "{status:#?}");
    strict.stop().await;

    let _controller = Controller::start(testbed, &ns).await;
    sm.wait_until_running().await;
    sm.create_pod("web").await;
    sm.set_schedule(&never()).await;
    // The controller drains with its own RBAC in the management cluster.
    wait_for("the Node is drained", async || ns.api::<Pod>().get_opt("web").await.unwrap().is_none()).await;
    let metadata = ObjectMeta { name: secret.metadata.name, labels: secret.metadata.labels, ..ObjectMeta::default() };
    secrets.create(&PostParams::default(), &Secret { metadata, ..secret }).await.unwrap();
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn missing_kubeconfig_after_restart_does_not_skip_the_drain() {
    let (workload, _kwok) = start_workload_cluster("lost-kubeconfig").await;
    let testbed = testbed().await;
    let ns = testbed.namespace("lost-kubeconfig").await;
    testbed.cluster_on(&workload, &ns, "edge").await.unwrap();
    let mut controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    let timed_out = scheduled_machine(&ns, "desk-02").node_drain_timeout("5s").create_running().await;
    let pods: Api<Pod> = Api::namespaced(workload.client(), "default");
    create_pod(&pods, "web", &sm.node_name(), &json!({})).await;
    controller.stop().await;
    let secrets = ns.api::<Secret>();
    let secret = secrets.get(SECRET).await.unwrap();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();

    let _controller = Controller::start(testbed, &ns).await;
    let mark = testbed.audit().mark();
    for sm in [&sm, &timed_out] {
        let status = wait_until_unreachable(sm).await;
        assert!(message_contains(&status, messages::RESTORE_KUBECONFIG), "{status:#?}");
        assert!(status.node_ref.is_some(), "{status:#?}");
        sm.set_schedule(&never()).await;
    }
    sm.wait_for_message(messages::CANNOT_IDENTIFY_NODE).await;
    assert!(!sm.machine_is_terminating().await);
    // After the drain timeout, Cluster API is left to drain the Node as far as it can.
    wait_for("the Machine is deleted", async || timed_out.machine().await.is_none()).await;
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().since(mark).writes().filter(sent_by_controller).in_namespace(&ns.name).on("machines");
    assert!(!writes.0.iter().any(|it| it.verb == "patch"), "{writes:#?}");
    assert!(!sm.machine_is_terminating().await && pods.get_opt("web").await.unwrap().is_some());

    let metadata = ObjectMeta { name: secret.metadata.name, labels: secret.metadata.labels, ..ObjectMeta::default() };
    secrets.create(&PostParams::default(), &Secret { metadata, ..secret }).await.unwrap();
    sm.wait_for_phase(Phase::Inactive).await;
    wait_for("the pod is evicted", async || pods.get_opt("web").await.unwrap().is_none()).await;
    ns.close().await;
}

#[tokio::test]
async fn insufficient_permissions_are_reported_without_request_storm() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("insufficient-rbac").await;
    let nodes_only = allow("", &["nodes"], &["get", "list", "watch", "patch"]);
    let access = ns.cluster_wide_account("nodes-only", vec![nodes_only]).await.unwrap();

    let mut controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").node_drain_timeout("25s").create_running().await;
    controller.stop().await;
    write_kubeconfig(&ns, &access.kubeconfig()).await;
    let controller = Controller::start(testbed, &ns).await;
    sm.wait_until_running().await;
    let mark = testbed.audit().mark();
    sm.set_schedule(&never()).await;
    let status = sm.wait_for_message(messages::HTTP_STATUS_FORBIDDEN).await;
    assert!(!message_contains(&status, "cannot list resource"), "the status quotes the server: {status:#?}");
    let log = controller.log();
    assert!(log.contains("pods is forbidden: User"), "the log does not quote the server: {log}");
    // The Machine is deleted after the drain timeout nevertheless.
    sm.wait_for_phase(Phase::Inactive).await;
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(&format!("system:serviceaccount:{}:nodes-only", ns.name));
    assert!(requests.len() < 100, "{}", requests.len());
    ns.close().await;
}

#[tokio::test]
async fn deleted_kubeconfig_is_reported_and_replacement_is_used() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("replaced-kubeconfig").await;
    let kubeconfig_through = |proxy: &FaultProxy| {
        let access = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap();
        access.through(proxy).kubeconfig()
    };
    let first = FaultProxy::start(testbed.control_plane()).unwrap();
    write_kubeconfig(&ns, &kubeconfig_through(&first)).await;
    let _controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let running = sm.wait_until_running().await;

    // Delete the Secret first, then the server that it points to.
    let secrets = ns.api::<Secret>();
    let mut secret = secrets.get(SECRET).await.unwrap();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    drop(first);
    let status = wait_until_unreachable(&sm).await;
    assert!(message_contains(&status, messages::KUBECONFIG_DELETED), "{status:#?}");
    assert_eq!((status.phase, status.node_ref), (Some(Phase::Active), running.node_ref));

    let second = FaultProxy::start(testbed.control_plane()).unwrap();
    (secret.metadata.resource_version, secret.metadata.uid) = (None, None);
    secret.data.as_mut().unwrap().insert("value".to_owned(), ByteString(kubeconfig_through(&second).into_bytes()));
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    sm.wait_until_running().await;
    sm.create_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    let writes = second.writes();
    assert!(writes.iter().any(|it| it.path.ends_with("/eviction")), "{writes:#?}");
    ns.close().await;
}

async fn cluster_role_rules(ns: &TestNamespace, role: &str) -> Vec<PolicyRule> {
    let role = Api::<ClusterRole>::all(ns.client.clone()).get(role).await.unwrap();
    role.rules.unwrap()
}

#[tokio::test]
async fn forbidden_kubeconfig_names_missing_role_binding() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("forbidden-kubeconfig").await;
    let rules = cluster_role_rules(&ns, "5spot-controller").await;
    let access = ns.cluster_wide_account("no-secrets", rules).await.unwrap();
    let _controller = Controller::start_as(testbed, &access, &["--namespace", &ns.name]);
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let message = wait_until_unreachable(&sm).await.message.unwrap();
    assert!(message.contains(&messages::bind_workload_access(&ns.name)), "{message}");

    // The binding of the hardened overlay, for the ServiceAccount of this test.
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "5spot-workload-access" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "5spot-workload-access" },
        "subjects": [{ "kind": "ServiceAccount", "name": "no-secrets", "namespace": ns.name }],
    }))
    .unwrap();
    ns.api::<RoleBinding>().create(&PostParams::default(), &binding).await.unwrap();
    sm.wait_until_running().await;
    ns.close().await;
}

#[tokio::test]
async fn forbidden_management_nodes_are_reported() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("forbidden-nodes").await;
    ns.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
    let mut rules =
        [cluster_role_rules(&ns, "5spot-controller").await, cluster_role_rules(&ns, "5spot-workload-access").await]
            .concat();
    rules.retain(|rule| rule.resources.as_ref().is_some_and(|resources| *resources != ["nodes"]));
    let access = ns.cluster_wide_account("no-nodes", rules).await.unwrap();
    let mut restricted = Controller::start_as(testbed, &access, &["--namespace", &ns.name]);
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let message = wait_until_unreachable(&sm).await.message.unwrap();
    assert!(message.contains("nodes is forbidden"), "{message}");
    restricted.stop().await;
    let _controller = Controller::start(testbed, &ns).await;
    sm.wait_until_running().await;
    ns.close().await;
}
