//! Keyholes into Cluster API: the few fields of its objects that we read, in whatever version it serves.

use std::borrow::Cow;

use fivespot_planner::children::MachineVersion;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::core::DynamicResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};

/// Group of Cluster API.
pub(crate) const GROUP: &str = "cluster.x-k8s.io";
/// Annotation of a Machine: Cluster API does not drain its Node.
pub(crate) const NO_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Annotation of a Machine: Cluster API does not wait for its volumes.
pub(crate) const NO_VOLUMES: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";

/// What Cluster API is called on this API server.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The version in which Machines are written.
    pub(crate) version: MachineVersion,
    /// Machines.
    pub(crate) machines: ApiResource,
    /// Clusters.
    pub(crate) clusters: ApiResource,
}

impl Served {
    pub(crate) fn new(version: MachineVersion) -> Self {
        let resource = |kind: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version.as_str(), kind), plural)
        };
        Served { version, machines: resource("Machine", "machines"), clusters: resource("Cluster", "clusters") }
    }
}

/// A Machine, as far as we read it. Both versions of Cluster API have these fields in the same places, but for the reason
/// of a failure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Machine {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: MachineSpec,
    #[serde(default)]
    pub(crate) status: MachineStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineSpec {
    #[serde(default)]
    pub(crate) cluster_name: String,
    #[serde(default, rename = "providerID")]
    pub(crate) provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineStatus {
    #[serde(default)]
    pub(crate) phase: Option<String>,
    #[serde(default)]
    pub(crate) node_ref: Option<NodeName>,
    #[serde(default)]
    pub(crate) conditions: Vec<MachineCondition>,
    #[serde(default)]
    pub(crate) failure_reason: Option<String>,
    #[serde(default)]
    pub(crate) failure_message: Option<String>,
    #[serde(default)]
    pub(crate) deprecated: Option<Deprecated>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct NodeName {
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct MachineCondition {
    #[serde(default, rename = "type")]
    pub(crate) type_: String,
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Deprecated {
    #[serde(default)]
    pub(crate) v1beta1: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failure {
    #[serde(default)]
    pub(crate) failure_reason: Option<String>,
    #[serde(default)]
    pub(crate) failure_message: Option<String>,
}

/// The condition by which a `MachineHealthCheck` says that a Machine is to be made anew by whoever made it.
const REMEDIATION: &str = "OwnerRemediated";

impl Machine {
    /// Drops what nobody reads, so that ten thousand of them fit into little memory.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.metadata);
        self.status.conditions.retain(|it| it.type_ == REMEDIATION);
    }

    /// Why it is of no use any more, if it is not.
    pub(crate) fn failure(&self) -> Option<String> {
        let status = &self.status;
        let deprecated = status.deprecated.as_ref().and_then(|it| it.v1beta1.as_ref());
        let reason = status.failure_reason.as_ref().or(deprecated.and_then(|it| it.failure_reason.as_ref()));
        let message = status.failure_message.as_ref().or(deprecated.and_then(|it| it.failure_message.as_ref()));
        let failed = status.phase.as_deref() == Some("Failed") || reason.is_some() || message.is_some();
        if failed {
            let said: Vec<&str> = [reason, message].into_iter().flatten().map(String::as_str).collect();
            return Some(if said.is_empty() { "Cluster API gives no reason".to_owned() } else { said.join(": ") });
        }
        let remediation = status.conditions.iter().find(|it| it.type_ == REMEDIATION && it.status == "False")?;
        Some(remediation.message.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| "it is not healthy".to_owned()))
    }
}

/// A Cluster, as far as we read it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Cluster {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: ClusterSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ClusterSpec {
    #[serde(default)]
    pub(crate) paused: Option<bool>,
}

impl Cluster {
    /// Drops what nobody reads.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.metadata);
        self.metadata.annotations = None;
    }
}

fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.labels = None;
    if let Some(annotations) = &mut metadata.annotations {
        let ours = |key: &str| key.starts_with(fivespot_api::keys::GROUP);
        annotations.retain(|key, _| ours(key) || key == NO_DRAIN || key == NO_VOLUMES);
    }
}

/// Whether a child belongs to the object of this uid. Garbage collection can strip the ownerRef, so either proves it.
pub(crate) fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    let annotated = metadata.annotations.as_ref().and_then(|it| it.get(fivespot_api::keys::OWNER_UID_ANNOTATION));
    let referred = metadata.owner_references.iter().flatten().any(|it| it.uid == uid);
    referred || annotated.is_some_and(|it| it == uid)
}

/// The uid of the Machine that controls a provider object.
pub(crate) fn adopted_by(object: &DynamicObject) -> Option<String> {
    let owners = object.owner_references();
    owners.iter().find(|it| it.controller == Some(true) && it.kind == "Machine").map(|it| it.uid.clone())
}

macro_rules! resource {
    ($type:ty) => {
        impl Resource for $type {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(of: &ApiResource) -> Cow<'_, str> {
                Cow::Borrowed(&of.kind)
            }

            fn group(of: &ApiResource) -> Cow<'_, str> {
                Cow::Borrowed(&of.group)
            }

            fn version(of: &ApiResource) -> Cow<'_, str> {
                Cow::Borrowed(&of.version)
            }

            fn api_version(of: &ApiResource) -> Cow<'_, str> {
                Cow::Borrowed(&of.api_version)
            }

            fn plural(of: &ApiResource) -> Cow<'_, str> {
                Cow::Borrowed(&of.plural)
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(Machine);
resource!(Cluster);
