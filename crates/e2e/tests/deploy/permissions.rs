//! What the shipped accounts must not do, tried: each is refused, and what they need is not.

use std::time::Duration;

use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::rendered::root;

const SOON: Duration = Duration::from_mins(5);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

async fn installed(name: &str, directory: &str) -> ControlPlane {
    let options = ControlPlaneOptions::named(name).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    for path in ["deploy/crds/scheduledmachine.yaml", directory] {
        plane.apply(&root().join(path)).await.unwrap();
    }
    plane
}

/// The status code and message of an answer.
async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), (u16, String)> {
    let request = Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .header("Content-Type", if method == "PATCH" { "application/merge-patch+json" } else { "application/json" })
        .body(if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })
        .unwrap();
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message)),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// What RBAC refuses.
async fn all_refused(access: &Access, tried: &[(&str, &str, Value)]) {
    let client = access.client();
    for (method, path, body) in tried {
        let answer = ask(&client, method, path, body).await;
        let by_rbac = answer.as_ref().is_err_and(|it| it.1.contains("User \"") && it.1.contains("\" cannot "));
        assert!(by_rbac && answer.as_ref().is_err_and(|it| it.0 == 403), "{method} {path}: {answer:?}");
    }
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

async fn make_secret(plane: &ControlPlane, namespace: &str, name: &str) {
    let namespaces = Api::all(plane.client());
    let namespace_ = serde_json::from_value(named(namespace)).unwrap();
    let _: Result<k8s_openapi::api::core::v1::Namespace, _> =
        namespaces.create(&PostParams::default(), &namespace_).await;
    let secret = serde_json::from_value(named(name)).unwrap();
    let secrets: Api<Secret> = Api::namespaced(plane.client(), namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn the_controller_cannot_help_itself_to_more() {
    let plane = installed("may-not", "deploy/controller").await;
    make_secret(&plane, "team-a", "edge-kubeconfig").await;
    let controller = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let admin = json!({
        "metadata": { "name": "mine" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-controller", "namespace": "5spot-system" }],
    });
    let everything = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    all_refused(
        &controller,
        &[
            // Secrets: one by its name, and nothing else.
            ("GET", "/api/v1/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/team-a/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/team-a/secrets?watch=1", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/secrets", named("mine")),
            ("PATCH", "/api/v1/namespaces/team-a/secrets/edge-kubeconfig", json!({ "data": {} })),
            ("DELETE", "/api/v1/namespaces/team-a/secrets/edge-kubeconfig", Value::Null),
            // More permissions.
            ("POST", &format!("{RBAC}/clusterrolebindings"), admin.clone()),
            ("POST", &format!("{RBAC}/namespaces/team-a/rolebindings"), admin),
            ("PATCH", &format!("{RBAC}/clusterroles/5spot-controller"), everything),
            ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", json!({})),
            ("POST", "/api/v1/namespaces/5spot-system/serviceaccounts", named("mine")),
            // What it is told, and by whom.
            ("POST", "/apis/5spot.finos.org/v1alpha1/namespaces/team-a/scheduledmachines", named("mine")),
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
            // Machines of others by the dozen, Nodes, and programs of its own.
            ("DELETE", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines", Value::Null),
            ("PATCH", "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/edge", json!({})),
            ("DELETE", "/api/v1/nodes/a", Value::Null),
            ("POST", "/api/v1/nodes", named("a")),
            ("PATCH", "/api/v1/nodes/a/status", json!({})),
            ("POST", "/api/v1/namespaces/team-a/pods", named("mine")),
            ("POST", "/api/v1/namespaces/team-a/pods/a/exec?command=sh", Value::Null),
            ("DELETE", "/api/v1/namespaces/team-a/pods", Value::Null),
            ("GET", "/api/v1/namespaces/kube-system/configmaps", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/configmaps", named("mine")),
            ("GET", "/api/v1/namespaces/team-a/pods/a/log", Value::Null),
        ],
    )
    .await;
    let own = "/api/v1/namespaces/team-a/secrets/edge-kubeconfig";
    ask(&controller.client(), "GET", own, &Value::Null).await.unwrap();
}

#[tokio::test]
async fn hardened_the_controller_reads_secrets_only_where_it_was_given_them_and_leaves_the_nodes_here_alone() {
    let plane = installed("hardened", "deploy/overlays/hardened").await;
    make_secret(&plane, "team-a", "edge-kubeconfig").await;
    make_secret(&plane, "team-b", "edge-kubeconfig").await;
    let mut tenant = plane.kubectl().unwrap();
    tenant.args(["apply", "-n", "team-a", "-k"]).arg(root().join("deploy/overlays/hardened/tenant"));
    crate::rendered::succeeded(tenant.output().unwrap());
    let controller = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let own = "/api/v1/namespaces/team-a/secrets/edge-kubeconfig";
    eventually("the binding counts", SOON, async || ask(&controller.client(), "GET", own, &Value::Null).await.is_ok())
        .await;
    make_node(&plane.client(), "here").await;
    all_refused(
        &controller,
        &[
            ("GET", "/api/v1/namespaces/team-b/secrets/edge-kubeconfig", Value::Null),
            ("GET", "/api/v1/nodes", Value::Null),
            ("GET", "/api/v1/nodes/here", Value::Null),
            ("PATCH", "/api/v1/nodes/here", json!({ "spec": { "unschedulable": true } })),
            ("GET", "/api/v1/pods", Value::Null),
            ("DELETE", "/api/v1/namespaces/team-a/pods/a", Value::Null),
            ("POST", "/api/v1/namespaces/team-a/pods/a/eviction", named("a")),
        ],
    )
    .await;
}

fn request() -> Value {
    json!({ "metadata": { "annotations": {
        "5spot.finos.org/reclaim-requested": "true",
        "5spot.finos.org/reclaim-reason": "process-match: idea",
        "5spot.finos.org/reclaim-requested-at": "2026-11-16T12:00:00Z",
    } } })
}

async fn make_node(client: &Client, name: &str) {
    let node: Node = serde_json::from_value(json!({ "metadata": {
        "name": name, "labels": { "kept": "yes" }, "annotations": { "kept": "yes" }, "finalizers": ["example.com/kept"],
    } }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
}

const OTHER_NODE: &str = "the reclaim agent of Node mine may not touch Node other";
const NO_NODE: &str =
    "the token of the reclaim agent names no Node: it needs Kubernetes 1.32 or newer and a token of its own pod";
const UPDATE_ALONE: &str = "the reclaim agent may only update its Node, not create, delete or connect to one";
const NO_SUBRESOURCE: &str = "the reclaim agent may not write the status or another subresource of a Node";
const THREE_ANNOTATIONS: &str = "of a Node's annotations the reclaim agent may write only its own three";
const NOTHING_ELSE: &str =
    "the reclaim agent may write only its annotations, not the labels, the spec or anything else of a Node";

/// The words in which the policy, and nobody else, refused it.
async fn told_by_the_policy(access: &Access, method: &str, path: &str, body: &Value) -> Result<String, String> {
    let policy = "ValidatingAdmissionPolicy '5spot-reclaim-agent-scope' with binding '5spot-reclaim-agent-scope' \
                  denied request: ";
    let answer = ask(&access.client(), method, path, body).await;
    let told = answer.as_ref().err().filter(|it| it.0 == 403).and_then(|it| it.1.split_once(policy));
    told.map(|it| it.1.to_owned()).ok_or_else(|| format!("{method} {path}: {answer:?}"))
}

async fn all_refused_by_the_policy(access: &Access, tried: &[(&str, &str, Value, &str)]) {
    for (method, path, body, words) in tried {
        let told = told_by_the_policy(access, method, path, body).await;
        assert_eq!(told.as_deref(), Ok(*words), "{method} {path} {body}");
    }
}

/// Two Nodes, and the agent of one of them.
async fn with_an_agent(name: &str) -> (ControlPlane, Access) {
    let plane = installed(name, "deploy/overlays/workload-cluster").await;
    for name in ["mine", "other"] {
        make_node(&plane.client(), name).await;
    }
    let agent = plane.service_account_on_node("5spot-system", "5spot-reclaim-agent", "mine").await.unwrap();
    eventually("the policy is in force", SOON, async || {
        told_by_the_policy(&agent, "PATCH", "/api/v1/nodes/other", &request()).await
    })
    .await;
    (plane, agent)
}

fn labels(value: &Value) -> Value {
    json!({ "metadata": { "labels": value } })
}

fn annotations(value: &Value) -> Value {
    json!({ "metadata": { "annotations": value } })
}

#[tokio::test]
async fn the_agent_writes_its_three_annotations_on_its_own_node_and_nothing_else() {
    let (plane, agent) = with_an_agent("agent").await;
    let (mine, other) = ("/api/v1/nodes/mine", "/api/v1/nodes/other");
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "other", "uid": "1" }]);
    let taints = json!([{ "key": "a", "effect": "NoExecute" }]);
    all_refused_by_the_policy(
        &agent,
        &[
            ("PATCH", other, request(), OTHER_NODE),
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
    all_refused_by_the_policy(&unbound, &[("PATCH", mine, request(), NO_NODE)]).await;

    // What it is there for, and taking it back.
    let nodes: Api<Node> = Api::all(agent.client());
    nodes.patch("mine", &PatchParams::default(), &Patch::Merge(&request())).await.unwrap();
    let cleared = annotations(&json!({ "5spot.finos.org/reclaim-requested": null }));
    nodes.patch("mine", &PatchParams::default(), &Patch::Merge(&cleared)).await.unwrap();
    nodes.get("mine").await.unwrap();
    let configured: Api<ConfigMap> = Api::namespaced(agent.client(), "5spot-system");
    configured.list(&kube::api::ListParams::default()).await.unwrap();
    // Others are not held to it.
    Api::<Node>::all(plane.client())
        .patch("mine", &PatchParams::default(), &Patch::Merge(&labels(&json!({ "kept": "no" }))))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_agent_cannot_help_itself_to_more() {
    let (_plane, agent) = with_an_agent("agent-may-not").await;
    let admin = json!({
        "metadata": { "name": "mine" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-reclaim-agent", "namespace": "5spot-system" }],
    });
    let everything = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let policy = format!("{ADMISSION}/validatingadmissionpolicies/5spot-reclaim-agent-scope");
    let binding = format!("{ADMISSION}/validatingadmissionpolicybindings/5spot-reclaim-agent-scope");
    let toothless = json!({ "spec": { "validationActions": ["Audit"] } });
    all_refused(
        &agent,
        &[
            ("PATCH", "/api/v1/nodes/mine/status", json!({ "status": { "phase": "Terminated" } })),
            ("PUT", "/api/v1/nodes/mine", named("mine")),
            ("DELETE", "/api/v1/nodes/mine", Value::Null),
            ("GET", "/api/v1/nodes", Value::Null),
            ("GET", "/api/v1/pods", Value::Null),
            ("GET", "/api/v1/namespaces/5spot-system/secrets", Value::Null),
            ("GET", "/api/v1/namespaces/kube-system/configmaps", Value::Null),
            ("POST", "/api/v1/namespaces/5spot-system/configmaps", named("mine")),
            ("PATCH", "/api/v1/namespaces/5spot-system/configmaps/reclaim-agent-other", json!({ "data": {} })),
            ("GET", "/apis/5spot.finos.org/v1alpha1/scheduledmachines", Value::Null),
            // More permissions.
            ("POST", &format!("{RBAC}/clusterrolebindings"), admin.clone()),
            ("POST", &format!("{RBAC}/namespaces/5spot-system/rolebindings"), admin),
            ("PATCH", &format!("{RBAC}/clusterroles/5spot-reclaim-agent"), everything.clone()),
            ("PATCH", &format!("{RBAC}/namespaces/5spot-system/roles/5spot-reclaim-agent"), everything),
            ("POST", "/api/v1/namespaces/5spot-system/serviceaccounts/5spot-reclaim-agent/token", json!({})),
            // Fewer limits.
            ("DELETE", &policy, Value::Null),
            ("PATCH", &policy, json!({ "spec": { "failurePolicy": "Ignore" } })),
            ("DELETE", &binding, Value::Null),
            ("PATCH", &binding, toothless),
        ],
    )
    .await;
}

/// As if a later role, or one of somebody else, had given it all that RBAC can give on Nodes.
#[tokio::test]
async fn the_policy_holds_whatever_the_agent_is_given_on_nodes() {
    let (plane, agent) = with_an_agent("agent-given-more").await;
    let more = "given-more";
    let role = json!({ "metadata": { "name": more }, "rules": [{
        "apiGroups": [""], "resources": ["nodes", "nodes/status", "nodes/proxy"],
        "verbs": ["get", "create", "update", "patch", "delete", "deletecollection"],
    }] });
    let binding = json!({
        "metadata": { "name": more },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": more },
        "subjects": [{ "kind": "ServiceAccount", "name": "5spot-reclaim-agent", "namespace": "5spot-system" }],
    });
    for (path, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        ask(&plane.client(), "POST", &format!("{RBAC}/{path}"), &object).await.unwrap();
    }
    let (mine, status) = ("/api/v1/nodes/mine", "/api/v1/nodes/mine/status");
    eventually("RBAC lets it through", SOON, async || told_by_the_policy(&agent, "DELETE", mine, &Value::Null).await)
        .await;

    let terminated = json!({ "status": { "phase": "Terminated" } });
    all_refused_by_the_policy(
        &agent,
        &[
            ("PATCH", status, terminated.clone(), NO_SUBRESOURCE),
            // Not even what it may write elsewhere.
            ("PATCH", status, request(), NO_SUBRESOURCE),
            ("PATCH", "/api/v1/nodes/other/status", terminated, NO_SUBRESOURCE),
            ("PUT", mine, named("mine"), THREE_ANNOTATIONS),
            ("PUT", "/api/v1/nodes/other", named("other"), OTHER_NODE),
            ("DELETE", mine, Value::Null, UPDATE_ALONE),
            ("DELETE", "/api/v1/nodes", Value::Null, UPDATE_ALONE),
            ("POST", "/api/v1/nodes", named("another"), UPDATE_ALONE),
            ("GET", "/api/v1/nodes/mine/proxy/pods", Value::Null, UPDATE_ALONE),
        ],
    )
    .await;
    ask(&agent.client(), "PATCH", mine, &request()).await.unwrap();
}
