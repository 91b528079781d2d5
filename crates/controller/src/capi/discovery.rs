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
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
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
        found.map(|(resource, _)| resource).ok_or_else(|| not_found(reference))
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
