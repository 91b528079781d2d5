//! Reading manifests that others publish, and putting objects into an API server.

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
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);

/// The documents of a YAML file.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, StartError> {
    let text = fs::read_to_string(path).map_err(StartError::io(path))?;
    let problem = |problem: String| StartError::Manifest { path: path.to_owned(), problem };
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| problem(error.to_string()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Puts a cluster-scoped object of a known kind in place, whether or not it is there already.
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
        .map_err(StartError::api(format!("applying {kind} {name}")))
}

/// Applies `CustomResourceDefinitions` and waits until their kinds are served.
pub(crate) async fn apply_crds(client: &Client, crds: &[Value]) -> Result<(), StartError> {
    futures::future::try_join_all(crds.iter().map(|crd| apply::<CustomResourceDefinition>(client, crd))).await?;
    await_kinds(client).await
}

/// Waits until every kind that is defined is served.
pub(crate) async fn await_kinds(client: &Client) -> Result<(), StartError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let defined = api.list_metadata(&ListParams::default()).await;
    for crd in defined.map_err(StartError::api("listing the kinds that are defined"))? {
        let name = crd.name_any();
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        match tokio::time::timeout(ESTABLISHED_WITHIN, established).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(not_served(&name, &error.to_string())),
            Err(_) => return Err(not_served(&name, "not established in time")),
        }
    }
    Ok(())
}

fn not_served(crd: &str, problem: &str) -> StartError {
    StartError::Manifest { path: crd.into(), problem: problem.to_owned() }
}

/// Binds a user to a `ClusterRole`.
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
