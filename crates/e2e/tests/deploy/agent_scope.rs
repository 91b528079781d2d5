//! The policy that restricts the agent, under the names that a user's kustomization gives to its objects.

use fivespot_e2e::{TIMEOUT, kustomization_dir};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions};
use kube::core::Status;
use serde_json::{Value, json};

use crate::permissions::{
    NOTHING_ELSE, OTHER_NODE, RBAC, THREE_ANNOTATIONS, annotations, create_node, labels, named, reclaim_request, send,
};

/// Two Nodes, and the credentials of the agent on Node `mine`, installed by a kustomization of a user.
async fn install_agent_with(name: &str, settings: &str, (namespace, account): (&str, &str)) -> (ControlPlane, Access) {
    let directory = kustomization_dir();
    let base = "resources: [../../deploy/overlays/workload-cluster]";
    std::fs::write(directory.path().join("kustomization.yaml"), format!("{base}\n{settings}\n")).unwrap();
    let options = ControlPlaneOptions::named(name).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    plane.apply(directory.path()).await.unwrap();
    for name in ["mine", "other"] {
        create_node(&plane.client(), name).await;
    }
    let agent = plane.service_account_on_node(namespace, account, "mine").await.unwrap();
    (plane, agent)
}

/// Kustomize changes the names of objects, but not those in the text of a policy.
#[tokio::test]
async fn agent_is_restricted_in_any_namespace_and_with_any_prefix() {
    for (name, settings, account) in [
        ("agent-namespace", "namespace: desks", ("desks", "5spot-reclaim-agent")),
        (
            "agent-prefix",
            "namespace: desks\nnamePrefix: edge-\nnameSuffix: -v2",
            ("desks", "edge-5spot-reclaim-agent-v2"),
        ),
    ] {
        let (plane, agent) = install_agent_with(name, settings, account).await;
        let client = agent.client();
        let denied = async |path: &str, body: &Value, message: &str| {
            let response = send(&client, "PATCH", path, body).await;
            let is_denied = |status: &Status| status.code == 403 && status.message.ends_with(message);
            if response.as_ref().is_err_and(is_denied) { Ok(()) } else { Err(format!("{response:?}")) }
        };
        let (mine, other) = ("/api/v1/nodes/mine", "/api/v1/nodes/other");
        eventually("the policy is in force", TIMEOUT, async || denied(other, &reclaim_request(), OTHER_NODE).await)
            .await;
        denied(mine, &annotations(&json!({ "kept": "no" })), THREE_ANNOTATIONS).await.unwrap();
        denied(mine, &labels(&json!({ "kept": "no" })), NOTHING_ELSE).await.unwrap();
        send(&client, "PATCH", mine, &reclaim_request()).await.unwrap();

        // Agents of other products write to Nodes, too.
        let others = create_network_agent(&plane).await;
        eventually("another agent may write to Nodes", TIMEOUT, async || {
            send(&others.client(), "PATCH", other, &annotations(&json!({ "kept": "no" }))).await
        })
        .await;
    }
}

/// A ServiceAccount that may patch Nodes and has nothing to do with 5-Spot, with a token of Node `mine`.
async fn create_network_agent(plane: &ControlPlane) -> Access {
    let name = "network-agent";
    let rule = json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"] });
    let role = json!({ "metadata": { "name": name }, "rules": [rule] });
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
    });
    for (path, object) in [
        ("/api/v1/namespaces/default/serviceaccounts", named(name)),
        (&*format!("{RBAC}/clusterroles"), role),
        (&*format!("{RBAC}/clusterrolebindings"), binding),
    ] {
        send(&plane.client(), "POST", path, &object).await.unwrap();
    }
    plane.service_account_on_node("default", name, "mine").await.unwrap()
}
