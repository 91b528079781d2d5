//! Reads manifests and applies objects.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use crate::control_plane::StartError;

const FIELD_MANAGER: &str = "fivespot-testbed";
const ESTABLISHED_TIMEOUT: Duration = Duration::from_mins(1);

/// The documents of a YAML file.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, StartError> {
    let text = fs::read_to_string(path).map_err(StartError::io(path))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|source| StartError::Parse { path: path.to_owned(), source: Box::new(source) })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies a cluster-scoped object.
pub(crate) async fn apply<K>(client: &Client, object: &Value) -> Result<(), StartError>
where
    K: Resource<DynamicType = ()>,
{
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let kind = K::kind(&());
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .map(drop)
        .map_err(StartError::api(format!("apply {kind} {name}")))
}

/// Applies CustomResourceDefinitions and waits until they are established.
pub(crate) async fn apply_crds(client: &Client, crds: &[Value]) -> Result<(), StartError> {
    futures::future::try_join_all(crds.iter().map(|crd| apply::<CustomResourceDefinition>(client, crd))).await?;
    await_crds(client).await
}

/// Waits until every CustomResourceDefinition is established.
pub(crate) async fn await_crds(client: &Client) -> Result<(), StartError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = api.list_metadata(&ListParams::default()).await;
    for crd in crds.map_err(StartError::api("list CustomResourceDefinitions"))? {
        let name = crd.name_any();
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        match tokio::time::timeout(ESTABLISHED_TIMEOUT, established).await {
            Ok(Ok(_)) => {}
            Ok(Err(source)) => return Err(StartError::Watch { name, source: Box::new(source) }),
            Err(_) => return Err(StartError::NotEstablished { name }),
        }
    }
    Ok(())
}

/// Binds a user to a ClusterRole.
pub(crate) async fn bind_user(client: &Client, user: &str, role: &str) -> Result<(), StartError> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("testbed:{user}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    apply::<ClusterRoleBinding>(client, &binding).await
}
