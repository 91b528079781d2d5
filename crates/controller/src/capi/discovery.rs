//! Discovery: which version of Cluster API is served, and the plural of each provider kind.

use std::collections::HashMap;

use fivespot_planner::children::MachineVersion;
use fivespot_planner::observed::Ref;
use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use kube::discovery::{self, ApiCapabilities, Scope};
use kube::error::DiscoveryError as KubeDiscoveryError;
use parking_lot::Mutex;

use super::types::{GROUP, ServedApi};
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, RequestError, send};

/// The preferred version of Cluster API that the API server serves and the controller supports; `None` if there is none.
pub(crate) async fn served_api(client: &Client) -> Result<Option<ServedApi>, RequestError> {
    for version in MachineVersion::ALL {
        let machine = GroupVersionKind::gvk(GROUP, version.as_str(), "Machine");
        let operation = Operation::new("discover", format!("kind Machine in {}", version.api_version()));
        match send(MANAGEMENT_TIMEOUT, operation, discovery::pinned_kind(client, &machine)).await {
            Ok(_) => return Ok(Some(ServedApi::new(version))),
            Err(error) if is_not_served(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Why a kind could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    #[error(
        "the API server serves no namespaced kind {kind} in {api_version}: install its provider, or correct the spec"
    )]
    KindNotFound { kind: String, api_version: String },
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Resolves provider kinds to API resources. Only kinds that were found are cached.
pub(crate) struct KindResolver {
    client: Client,
    /// By apiVersion and kind.
    resolved: Mutex<HashMap<(String, String), ApiResource>>,
}

impl KindResolver {
    pub(crate) fn new(client: Client) -> Self {
        KindResolver { client, resolved: Mutex::default() }
    }

    /// Resolves a kind in the apiVersion of the reference.
    pub(crate) async fn resolve(&self, reference: &Ref) -> Result<ApiResource, DiscoveryError> {
        if let Some(resource) = self.resolved.lock().get(&cache_key(reference)) {
            return Ok(resource.clone());
        }
        // No child is of a core kind.
        let Some((group, version)) = reference.api_version.split_once('/') else { return Err(not_found(reference)) };
        let kind = GroupVersionKind::gvk(group, version, &reference.kind);
        let operation = Operation::new("discover", format!("kind {} in {}", reference.kind, reference.api_version));
        match send(MANAGEMENT_TIMEOUT, operation, discovery::pinned_kind(&self.client, &kind)).await {
            Ok((resource, capabilities)) if is_namespaced(&capabilities) => {
                self.resolved.lock().insert(cache_key(reference), resource.clone());
                Ok(resource)
            }
            Ok(_) => Err(not_found(reference)),
            Err(error) if is_not_served(&error) => Err(not_found(reference)),
            Err(error) => Err(error.into()),
        }
    }

    /// Resolves the kind of an object that was created earlier: its provider may serve another version since then.
    pub(crate) async fn resolve_any_version(&self, reference: &Ref) -> Result<ApiResource, DiscoveryError> {
        match self.resolve(reference).await {
            Err(DiscoveryError::KindNotFound { .. }) => {}
            resolved => return resolved,
        }
        let Some((group, _)) = reference.api_version.split_once('/') else { return Err(not_found(reference)) };
        let is_match = |resource: &&ApiResource| resource.group == group && resource.kind == reference.kind;
        if let Some(resource) = self.resolved.lock().values().find(is_match) {
            return Ok(resource.clone());
        }
        let operation = Operation::new("discover", format!("kind {} in any version of {group}", reference.kind));
        let group = match send(MANAGEMENT_TIMEOUT, operation, discovery::group(&self.client, group)).await {
            Ok(group) => group,
            // Not a 404: one version was removed during discovery, and the kind may exist in another one.
            Err(error) if is_missing(&error) => return Err(not_found(reference)),
            Err(error) => return Err(error.into()),
        };
        let mut resources = group.resources_by_stability().into_iter();
        let found =
            resources.find(|(resource, capabilities)| resource.kind == reference.kind && is_namespaced(capabilities));
        let Some((resource, _)) = found else { return Err(not_found(reference)) };
        self.resolved.lock().insert((resource.api_version.clone(), resource.kind.clone()), resource.clone());
        Ok(resource)
    }

    /// Drops a kind that is no longer served from the cache.
    pub(crate) fn forget(&self, reference: &Ref) {
        self.resolved.lock().remove(&cache_key(reference));
    }
}

fn cache_key(reference: &Ref) -> (String, String) {
    (reference.api_version.clone(), reference.kind.clone())
}

fn is_namespaced(capabilities: &ApiCapabilities) -> bool {
    capabilities.scope == Scope::Namespaced
}

/// Whether the API server does not serve a version, or a kind in it.
fn is_not_served(error: &RequestError) -> bool {
    error.is_not_found() || is_missing(error)
}

/// Whether discovery succeeded and the group or kind is not in it.
fn is_missing(error: &RequestError) -> bool {
    let RequestError::Failed { source: kube::Error::Discovery(error), .. } = error else { return false };
    match error {
        KubeDiscoveryError::MissingKind(_)
        | KubeDiscoveryError::MissingApiGroup(_)
        | KubeDiscoveryError::MissingResource(_)
        | KubeDiscoveryError::EmptyApiGroup(_) => true,
        KubeDiscoveryError::InvalidGroupVersion(_) => false,
    }
}

fn not_found(reference: &Ref) -> DiscoveryError {
    DiscoveryError::KindNotFound { kind: reference.kind.clone(), api_version: reference.api_version.clone() }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::header::CONTENT_TYPE;
    use axum::routing::get;
    use kube::Config;
    use serde_json::{Value, json};

    use super::*;

    const GROUP_UNDER_TEST: &str = "infrastructure.cluster.x-k8s.io";

    /// A server with these versions; each has these namespaced kinds, or is listed and not served.
    async fn resolver(versions: &[(&str, Option<&[&str]>)]) -> KindResolver {
        let version_list: Vec<Value> = versions
            .iter()
            .map(|(version, _)| json!({ "groupVersion": format!("{GROUP_UNDER_TEST}/{version}"), "version": version }))
            .collect();
        let group = json!({ "name": GROUP_UNDER_TEST, "versions": version_list, "preferredVersion": version_list[0] });
        let respond = |body: Value| get(async move || ([(CONTENT_TYPE, "application/json")], body.to_string()));
        let mut router = Router::new().route("/apis", respond(json!({ "groups": [group] })));
        for (version, kinds) in versions {
            let Some(kinds) = kinds else { continue };
            let resources: Vec<Value> = kinds
                .iter()
                .map(|kind| {
                    let plural = format!("{}s", kind.to_lowercase());
                    json!({ "name": plural, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["get"] })
                })
                .collect();
            let path = format!("/apis/{GROUP_UNDER_TEST}/{version}");
            let group_version = format!("{GROUP_UNDER_TEST}/{version}");
            router = router.route(&path, respond(json!({ "groupVersion": group_version, "resources": resources })));
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        KindResolver::new(Client::try_from(Config::new(url.parse().unwrap())).unwrap())
    }

    fn reference(version: &str, kind: &str) -> Ref {
        let api_version = format!("{GROUP_UNDER_TEST}/{version}");
        Ref { api_version, kind: kind.to_owned(), name: "desk-01-infra".to_owned() }
    }

    #[tokio::test]
    async fn kind_is_found_outside_the_preferred_version() {
        let resolver = resolver(&[("v1beta2", Some(&["Other"])), ("v1beta1", Some(&["RemoteMachine"]))]).await;
        let removed = reference("v1alpha1", "RemoteMachine");
        assert!(matches!(resolver.resolve(&removed).await, Err(DiscoveryError::KindNotFound { .. })));
        let resolved = resolver.resolve_any_version(&removed).await.unwrap();
        assert_eq!((resolved.version.as_str(), resolved.plural.as_str()), ("v1beta1", "remotemachines"));
        let unknown = resolver.resolve_any_version(&reference("v1alpha1", "Unknown")).await;
        assert!(matches!(unknown, Err(DiscoveryError::KindNotFound { .. })));
    }

    #[tokio::test]
    async fn version_removed_during_discovery_is_no_missing_kind() {
        let resolver = resolver(&[("v1beta2", None), ("v1beta1", Some(&["RemoteMachine"]))]).await;
        let result = resolver.resolve_any_version(&reference("v1alpha1", "RemoteMachine")).await;
        assert!(matches!(result, Err(DiscoveryError::Request(_))), "{result:?}");
    }
}
