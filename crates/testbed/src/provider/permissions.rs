//! RBAC of the provider. It has no write access to `cluster.x-k8s.io`.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use serde_json::{Value, json};

use crate::control_plane::{SIMULATED_PROVIDER, StartError};
use crate::manifest;

/// In the management cluster.
pub(super) async fn grant_management(admin: &Client) -> Result<(), StartError> {
    let rules = json!([
        { "apiGroups": ["cluster.x-k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["bootstrap.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io",
                        "controlplane.cluster.x-k8s.io", "k0smotron.io"],
          "resources": ["*"], "verbs": ["get", "list", "watch", "update", "patch"] },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"] },
        node_rule(),
    ]);
    bind(admin, &rules).await
}

/// In a separate workload cluster.
pub(super) async fn grant_workload(admin: &Client) -> Result<(), StartError> {
    bind(admin, &json!([node_rule()])).await
}

fn node_rule() -> Value {
    json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "create", "delete"] })
}

async fn bind(admin: &Client, rules: &Value) -> Result<(), StartError> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "testbed:simulated-provider" },
        "rules": rules,
    });
    manifest::apply::<ClusterRole>(admin, &role).await?;
    manifest::bind_user(admin, SIMULATED_PROVIDER, "testbed:simulated-provider").await
}
