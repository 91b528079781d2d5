//! The fields of Cluster API objects that the controller reads, in either version of Cluster API.

use std::borrow::Cow;

use fivespot_planner::children::MachineVersion;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::core::DynamicResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};

pub(crate) const GROUP: &str = "cluster.x-k8s.io";
/// Annotation of a Machine: Cluster API does not drain the Node before it deletes the Machine.
pub(crate) const EXCLUDE_NODE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Annotation of a Machine: Cluster API does not wait until the volumes of the Node are detached.
pub(crate) const EXCLUDE_VOLUME_DETACH: &str = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";

/// The version of Cluster API that the controller uses.
#[derive(Clone, Debug)]
pub(crate) struct ServedApi {
    pub(crate) version: MachineVersion,
    pub(crate) machines: ApiResource,
    pub(crate) clusters: ApiResource,
}

impl ServedApi {
    pub(crate) fn new(version: MachineVersion) -> Self {
        let resource = |kind: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version.as_str(), kind), plural)
        };
        ServedApi { version, machines: resource("Machine", "machines"), clusters: resource("Cluster", "clusters") }
    }
}

/// A Machine. Both versions of Cluster API have these fields in the same places, except for the failure.
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
    pub(crate) node_ref: Option<NodeRef>,
    #[serde(default)]
    pub(crate) conditions: Vec<MachineCondition>,
    #[serde(default)]
    pub(crate) failure_reason: Option<String>,
    #[serde(default)]
    pub(crate) failure_message: Option<String>,
    #[serde(default)]
    pub(crate) deprecated: Option<DeprecatedStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct NodeRef {
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
pub(crate) struct DeprecatedStatus {
    #[serde(default)]
    pub(crate) v1beta1: Option<DeprecatedFailure>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeprecatedFailure {
    #[serde(default)]
    pub(crate) failure_reason: Option<String>,
    #[serde(default)]
    pub(crate) failure_message: Option<String>,
}

/// The condition by which a `MachineHealthCheck` asks the owner of a Machine to replace it.
const OWNER_REMEDIATED: &str = "OwnerRemediated";

impl Machine {
    /// Drops fields that are never read, so that a cache of ten thousand Machines stays small.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.metadata);
        self.status.conditions.retain(|condition| condition.type_ == OWNER_REMEDIATED);
    }

    /// Name of the Node in `status.nodeRef`.
    pub(crate) fn node_name(&self) -> Option<String> {
        self.status.node_ref.as_ref().map(|node| node.name.clone()).filter(|name| !name.is_empty())
    }

    /// Why the Machine has to be replaced, if it has to.
    pub(crate) fn failure(&self) -> Option<String> {
        let status = &self.status;
        let deprecated = status.deprecated.as_ref().and_then(|it| it.v1beta1.as_ref());
        let reason = status.failure_reason.as_ref().or(deprecated.and_then(|it| it.failure_reason.as_ref()));
        let message = status.failure_message.as_ref().or(deprecated.and_then(|it| it.failure_message.as_ref()));
        let failed = status.phase.as_deref() == Some("Failed") || reason.is_some() || message.is_some();
        if failed {
            let cause: Vec<&str> = [reason, message].into_iter().flatten().map(String::as_str).collect();
            return Some(if cause.is_empty() { "Cluster API reports no reason".to_owned() } else { cause.join(": ") });
        }
        let remediation = status.conditions.iter().find(|it| it.type_ == OWNER_REMEDIATED && it.status == "False")?;
        let message = remediation.message.clone().filter(|message| !message.is_empty());
        Some(message.unwrap_or_else(|| "a MachineHealthCheck reports it as unhealthy".to_owned()))
    }
}

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
    /// Drops fields that are never read.
    pub(crate) fn trim(&mut self) {
        trim(&mut self.metadata);
        self.metadata.annotations = None;
    }
}

fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.labels = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| {
            key.starts_with(fivespot_api::keys::GROUP) || key == EXCLUDE_NODE_DRAINING || key == EXCLUDE_VOLUME_DETACH
        });
    }
}

/// Whether a child belongs to the ScheduledMachine with this uid. Garbage collection can remove the ownerRef, so the
/// annotation proves it too.
pub(crate) fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    let annotated = metadata.annotations.as_ref().and_then(|it| it.get(fivespot_api::keys::OWNER_UID_ANNOTATION));
    let referred = metadata.owner_references.iter().flatten().any(|it| it.uid == uid);
    referred || annotated.is_some_and(|it| it == uid)
}

/// The uid of the Machine that is the controller owner of a provider object.
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
