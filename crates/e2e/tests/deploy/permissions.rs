//! The shipped ServiceAccounts cannot do more than they need: each forbidden request is sent and must be rejected.

use fivespot_e2e::{TIMEOUT, repo_root};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

async fn install(name: &str, directory: &str) -> ControlPlane {
    let options = ControlPlaneOptions::named(name).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    for path in ["deploy/crds/scheduledmachine.yaml", directory] {
        plane.apply(&repo_root().join(path)).await.unwrap();
    }
    plane
}

/// Sends a request; the error has the status code and message of the API server.
pub(crate) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), Status> {
    let request = Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .header("Content-Type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" })
        .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })
        .unwrap();
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// Asserts that RBAC rejects every request.
async fn assert_forbidden(access: &Access, requests: &[(&str, &str, Value)]) {
    let client = access.client();
    for (method, path, body) in requests {
        let response = send(&client, method, path, body).await;
        let by_rbac = |status: &Status| status.message.contains("User \"") && status.message.contains("\" cannot ");
        let forbidden = response.as_ref().is_err_and(|status| status.code == 403 && by_rbac(status));
        assert!(forbidden, "{method} {path}: {response:?}");
    }
}

pub(crate) fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

async fn create_secret(plane: &ControlPlane, namespace: &str, name: &str) {
    let namespaces: Api<Namespace> = Api::all(plane.client());
    // Fails if the namespace exists.
    let _ = namespaces.create(&PostParams::default(), &serde_json::from_value(named(namespace)).unwrap()).await;
    let secret = serde_json::from_value(named(name)).unwrap();
    let secrets: Api<Secret> = Api::namespaced(plane.client(), namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn controller_cannot_escalate() {
    let plane = install("controller-permissions", "deploy/controller").await;
    create_secret(&plane, "team-a", "edge-kubeconfig").await;
    let controller = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let admin = json!({
        "metadata": { "name": "escalation" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-controller", "namespace": "5spot-system" }],
    });
    let everything = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    assert_forbidden(
        &controller,
        &[
            // Secrets: only get by name.
            ("GET", "/api/v1/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/team-a/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/team-a/secrets?watch=1", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/secrets", named("new")),
            ("PATCH", "/api/v1/namespaces/team-a/secrets/edge-kubeconfig", json!({ "data": {} })),
            ("DELETE", "/api/v1/namespaces/team-a/secrets/edge-kubeconfig", Value::Null),
            // RBAC and tokens.
            ("POST", &format!("{RBAC}/clusterrolebindings"), admin.clone()),
            ("POST", &format!("{RBAC}/namespaces/team-a/rolebindings"), admin),
            ("PATCH", &format!("{RBAC}/clusterroles/5spot-controller"), everything),
            ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", json!({})),
            ("POST", "/api/v1/namespaces/5spot-system/serviceaccounts", named("new")),
            // Its own API and admission policy.
            ("POST", "/apis/5spot.finos.org/v1alpha1/namespaces/team-a/scheduledmachines", named("new")),
            ("DELETE", "/apis/5spot.finos.org/v1alpha1/namespaces/team-a/scheduledmachines/a", Value::Null),
            (
                "PATCH",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scheduledmachines.5spot.finos.org",
                json!({}),
            ),
            ("DELETE", &format!("{ADMISSION}/validatingadmissionpolicies/scheduledmachine-validation"), Value::Null),
            (
                "DELETE",
                &format!("{ADMISSION}/validatingadmissionpolicybindings/scheduledmachine-validation-binding"),
                Value::Null,
            ),
            // Collections, Nodes, pods and ConfigMaps.
            ("DELETE", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines", Value::Null),
            ("PATCH", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/edge", json!({})),
            ("DELETE", "/api/v1/nodes/a", Value::Null),
            ("POST", "/api/v1/nodes", named("a")),
            ("PATCH", "/api/v1/nodes/a/status", json!({})),
            ("POST", "/api/v1/namespaces/team-a/pods", named("new")),
            ("POST", "/api/v1/namespaces/team-a/pods/a/exec?command=sh", Value::Null),
            ("DELETE", "/api/v1/namespaces/team-a/pods", Value::Null),
            ("GET", "/api/v1/namespaces/kube-system/configmaps", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/configmaps", named("new")),
            ("GET", "/api/v1/namespaces/team-a/pods/a/log", Value::Null),
        ],
    )
    .await;
    let own = "/api/v1/namespaces/team-a/secrets/edge-kubeconfig";
    send(&controller.client(), "GET", own, &Value::Null).await.unwrap();
}

#[tokio::test]
async fn hardened_controller_reads_only_granted_secrets_and_no_management_nodes() {
    let plane = install("hardened", "deploy/overlays/hardened").await;
    create_secret(&plane, "team-a", "edge-kubeconfig").await;
    create_secret(&plane, "team-b", "edge-kubeconfig").await;
    let mut tenant = plane.kubectl().unwrap();
    tenant.args(["apply", "-n", "team-a", "-k"]).arg(repo_root().join("deploy/overlays/hardened/tenant"));
    crate::render::succeeded(tenant.output().unwrap());
    let controller = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let own = "/api/v1/namespaces/team-a/secrets/edge-kubeconfig";
    eventually("the binding is effective", TIMEOUT, async || {
        send(&controller.client(), "GET", own, &Value::Null).await.is_ok()
    })
    .await;
    create_node(&plane.client(), "management").await;
    assert_forbidden(
        &controller,
        &[
            ("GET", "/api/v1/namespaces/team-b/secrets/edge-kubeconfig", Value::Null),
            ("GET", "/api/v1/nodes", Value::Null),
            ("GET", "/api/v1/nodes/management", Value::Null),
            ("PATCH", "/api/v1/nodes/management", json!({ "spec": { "unschedulable": true } })),
            ("GET", "/api/v1/pods", Value::Null),
            ("DELETE", "/api/v1/namespaces/team-a/pods/a", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/pods/a/eviction", named("a")),
        ],
    )
    .await;
}

pub(crate) fn reclaim_request() -> Value {
    json!({ "metadata": { "annotations": {
        "5spot.finos.org/reclaim-requested": "true",
        "5spot.finos.org/reclaim-reason": "process-match: idea",
        "5spot.finos.org/reclaim-requested-at": "2026-11-16T12:00:00Z",
    } } })
}

pub(crate) async fn create_node(client: &Client, name: &str) {
    let node: Node = serde_json::from_value(json!({ "metadata": {
        "name": name, "labels": { "kept": "yes" }, "annotations": { "kept": "yes" }, "finalizers": ["example.com/kept"],
    } }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
}

pub(crate) const OTHER_NODE: &str = "the reclaim agent of Node mine may not touch Node other";
const NO_NODE: &str =
    "the token of the reclaim agent names no Node: it needs Kubernetes 1.32 or newer and a token of its own pod";
const UPDATE_ONLY: &str = "the reclaim agent may only update its Node, not create, delete or connect to one";
const NO_SUBRESOURCE: &str = "the reclaim agent may not write the status or another subresource of a Node";
pub(crate) const THREE_ANNOTATIONS: &str = "of a Node's annotations the reclaim agent may write only its own three";
pub(crate) const NOTHING_ELSE: &str =
    "the reclaim agent may write only its annotations, not the labels, the spec or anything else of a Node";

/// The request was not denied by the agent-scope policy.
#[derive(Debug)]
struct NotDenied(Result<(), Status>);

impl std::fmt::Display for NotDenied {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}

/// The message with which the agent-scope policy denies a request.
async fn denial(access: &Access, method: &str, path: &str, body: &Value) -> Result<String, NotDenied> {
    let policy = "ValidatingAdmissionPolicy '5spot-reclaim-agent-scope' with binding '5spot-reclaim-agent-scope' \
                  denied request: ";
    let response = send(&access.client(), method, path, body).await;
    let forbidden = response.as_ref().err().filter(|status| status.code == 403);
    let message = forbidden.and_then(|status| status.message.split_once(policy)).map(|(_, message)| message.to_owned());
    message.ok_or(NotDenied(response))
}

/// Asserts that the agent-scope policy denies every request with the given message.
async fn assert_denied(access: &Access, requests: &[(&str, &str, Value, &str)]) {
    for (method, path, body, message) in requests {
        let denied = denial(access, method, path, body).await;
        let denied = denied.unwrap_or_else(|response| panic!("{method} {path} {body}: {response}"));
        assert_eq!(denied, *message, "{method} {path} {body}");
    }
}

/// Two Nodes, and the credentials of the agent on Node `mine`.
async fn install_agent(name: &str) -> (ControlPlane, Access) {
    let plane = install(name, "deploy/overlays/workload-cluster").await;
    for name in ["mine", "other"] {
        create_node(&plane.client(), name).await;
    }
    let agent = plane.service_account_on_node("5spot-system", "5spot-reclaim-agent", "mine").await.unwrap();
    eventually("the policy is in force", TIMEOUT, async || {
        denial(&agent, "PATCH", "/api/v1/nodes/other", &reclaim_request()).await
    })
    .await;
    (plane, agent)
}

pub(crate) fn labels(value: &Value) -> Value {
    json!({ "metadata": { "labels": value } })
}

pub(crate) fn annotations(value: &Value) -> Value {
    json!({ "metadata": { "annotations": value } })
}

#[tokio::test]
async fn agent_writes_only_its_three_annotations_on_its_own_node() {
    let (plane, agent) = install_agent("agent").await;
    let (mine, other) = ("/api/v1/nodes/mine", "/api/v1/nodes/other");
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "other", "uid": "1" }]);
    let taints = json!([{ "key": "a", "effect": "NoExecute" }]);
    assert_denied(
        &agent,
        &[
            ("PATCH", other, reclaim_request(), OTHER_NODE),
            ("PATCH", mine, annotations(&json!({ "5spot.finos.org/cordoned-by": "me" })), THREE_ANNOTATIONS),
            ("PATCH", mine, annotations(&json!({ "kept": "no" })), THREE_ANNOTATIONS),
            ("PATCH", mine, annotations(&json!({ "kept": null })), THREE_ANNOTATIONS),
            ("PATCH", mine, labels(&json!({ "5spot.finos.org/reclaim-agent": "enabled" })), NOTHING_ELSE),
            ("PATCH", mine, labels(&json!({ "kept": null })), NOTHING_ELSE),
            ("PATCH", mine, json!({ "metadata": { "finalizers": null } }), NOTHING_ELSE),
            ("PATCH", mine, json!({ "metadata": { "ownerReferences": owner } }), NOTHING_ELSE),
            ("PATCH", mine, json!({ "spec": { "unschedulable": true } }), NOTHING_ELSE),
            ("PATCH", mine, json!({ "spec": { "taints": taints } }), NOTHING_ELSE),
        ],
    )
    .await;
    let unbound = plane.service_account("5spot-system", "5spot-reclaim-agent").await.unwrap();
    assert_denied(&unbound, &[("PATCH", mine, reclaim_request(), NO_NODE)]).await;

    // What the agent needs: set and clear a request, read its Node and ConfigMaps.
    let nodes: Api<Node> = Api::all(agent.client());
    nodes.patch("mine", &PatchParams::default(), &Patch::Merge(&reclaim_request())).await.unwrap();
    let cleared = annotations(&json!({ "5spot.finos.org/reclaim-requested": null }));
    nodes.patch("mine", &PatchParams::default(), &Patch::Merge(&cleared)).await.unwrap();
    nodes.get("mine").await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(agent.client(), "5spot-system");
    config_maps.list(&kube::api::ListParams::default()).await.unwrap();
    // The policy does not apply to other users.
    Api::<Node>::all(plane.client())
        .patch("mine", &PatchParams::default(), &Patch::Merge(&labels(&json!({ "kept": "no" }))))
        .await
        .unwrap();
}

#[tokio::test]
async fn agent_cannot_escalate() {
    let (_plane, agent) = install_agent("agent-permissions").await;
    let admin = json!({
        "metadata": { "name": "escalation" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-reclaim-agent", "namespace": "5spot-system" }],
    });
    let everything = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/5spot-reclaim-agent-scope");
    let binding = format!("{ADMISSION}/validatingadmissionpolicybindings/5spot-reclaim-agent-scope");
    let audit_only = json!({ "spec": { "validationActions": ["Audit"] } });
    assert_forbidden(
        &agent,
        &[
            ("PATCH", "/api/v1/nodes/mine/status", json!({ "status": { "phase": "Terminated" } })),
            ("PUT", "/api/v1/nodes/mine", named("mine")),
            ("DELETE", "/api/v1/nodes/mine", Value::Null),
            ("GET", "/api/v1/nodes", Value::Null),
            ("GET", "/api/v1/pods", Value::Null),
            ("GET", "/api/v1/namespaces/5spot-system/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/kube-system/configmaps", Value::Null),
            ("POST", "/api/v1/namespaces/5spot-system/configmaps", named("new")),
            ("PATCH", "/api/v1/namespaces/5spot-system/configmaps/reclaim-agent-other", json!({ "data": {} })),
            ("GET", "/apis/5spot.finos.org/v1alpha1/scheduledmachines", Value::Null),
            // RBAC and tokens.
            ("POST", &format!("{RBAC}/clusterrolebindings"), admin.clone()),
            ("POST", &format!("{RBAC}/namespaces/5spot-system/rolebindings"), admin),
            ("PATCH", &format!("{RBAC}/clusterroles/5spot-reclaim-agent"), everything.clone()),
            ("PATCH", &format!("{RBAC}/namespaces/5spot-system/roles/5spot-reclaim-agent"), everything),
            ("POST", "/api/v1/namespaces/5spot-system/serviceaccounts/5spot-reclaim-agent/token", json!({})),
            // The policy that restricts it.
            ("DELETE", &policy, Value::Null),
            ("PATCH", &policy, json!({ "spec": { "failurePolicy": "Ignore" } })),
            ("DELETE", &binding, Value::Null),
            ("PATCH", &binding, audit_only),
        ],
    )
    .await;
}

/// Even if another role grants the agent all permissions on Nodes.
#[tokio::test]
async fn scope_policy_holds_with_all_node_permissions() {
    let (plane, agent) = install_agent("agent-all-node-permissions").await;
    let name = "all-node-permissions";
    let role = json!({ "metadata": { "name": name }, "rules": [{
        "apiGroups": [""], "resources": ["nodes", "nodes/status", "nodes/proxy"],
        "verbs": ["get", "create", "update", "patch", "delete", "deletecollection"],
    }] });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-reclaim-agent", "namespace": "5spot-system" }],
    });
    for (path, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        send(&plane.client(), "POST", &format!("{RBAC}/{path}"), &object).await.unwrap();
    }
    let (mine, status) = ("/api/v1/nodes/mine", "/api/v1/nodes/mine/status");
    eventually("RBAC allows the request", TIMEOUT, async || denial(&agent, "DELETE", mine, &Value::Null).await).await;

    let terminated = json!({ "status": { "phase": "Terminated" } });
    assert_denied(
        &agent,
        &[
            ("PATCH", status, terminated.clone(), NO_SUBRESOURCE),
            // Not even its own annotations.
            ("PATCH", status, reclaim_request(), NO_SUBRESOURCE),
            ("PATCH", "/api/v1/nodes/other/status", terminated, NO_SUBRESOURCE),
            ("PUT", mine, named("mine"), THREE_ANNOTATIONS),
            ("PUT", "/api/v1/nodes/other", named("other"), OTHER_NODE),
            ("DELETE", mine, Value::Null, UPDATE_ONLY),
            ("DELETE", "/api/v1/nodes", Value::Null, UPDATE_ONLY),
            ("POST", "/api/v1/nodes", named("another"), UPDATE_ONLY),
            ("GET", "/api/v1/nodes/mine/proxy/pods", Value::Null, UPDATE_ONLY),
        ],
    )
    .await;
    send(&agent.client(), "PATCH", mine, &reclaim_request()).await.unwrap();
}
