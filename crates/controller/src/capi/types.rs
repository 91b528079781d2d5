//! The fields of Cluster API objects that the controller reads, in either version of Cluster API.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fivespot_api::keys;
use fivespot_planner::children::MachineVersion;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::api::{ApiResource, GroupVersionKind};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use crate::object::fields::{Fields, Reading, split};
use crate::runtime::request::truncate;

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
///
/// Tenants write Machines and Clusters too. Each is decoded by itself and field by field, and only what is used is kept, in
/// bounded length, so that no object can fail the watch that all share or fill the cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: MachineSpec,
    pub(crate) status: MachineStatus,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MachineSpec {
    pub(crate) cluster_name: String,
    pub(crate) provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MachineStatus {
    pub(crate) phase: Option<String>,
    /// Name in `nodeRef`.
    pub(crate) node_name: Option<String>,
    pub(crate) failure_reason: Option<String>,
    pub(crate) failure_message: Option<String>,
    /// The message of the condition by which a `MachineHealthCheck` asks the owner to replace the Machine.
    pub(crate) remediation: Option<String>,
}

#[derive(Deserialize)]
struct MachineCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    message: String,
}

/// The condition by which a `MachineHealthCheck` asks the owner of a Machine to replace it.
const OWNER_REMEDIATED: &str = "OwnerRemediated";

impl Machine {
    /// Name of the Node in `status.nodeRef`.
    pub(crate) fn node_name(&self) -> Option<String> {
        self.status.node_name.clone()
    }

    /// Why the Machine has to be replaced, if it has to.
    pub(crate) fn failure(&self) -> Option<String> {
        let status = &self.status;
        let (reason, message) = (status.failure_reason.as_ref(), status.failure_message.as_ref());
        let failed = status.phase.as_deref() == Some("Failed") || reason.is_some() || message.is_some();
        if failed {
            let cause: Vec<&str> = [reason, message].into_iter().flatten().map(String::as_str).collect();
            return Some(if cause.is_empty() { "Cluster API reports no reason".to_owned() } else { cause.join(": ") });
        }
        let message = status.remediation.clone()?;
        let unknown = || "a MachineHealthCheck reports it as unhealthy".to_owned();
        Some(Some(message).filter(|message| !message.is_empty()).unwrap_or_else(unknown))
    }

    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let (root, mut reading) = (split(json)?, Reading::unlimited());
        let metadata = metadata(root.get("metadata").copied());
        let mut fields = Fields::new("spec", root.get("spec").copied(), &mut reading);
        let spec = MachineSpec {
            cluster_name: name(&mut fields, "clusterName").unwrap_or_default(),
            provider_id: fields.read("providerID").filter(|it: &String| it.len() <= MAX_PROVIDER_ID_LEN),
        };
        let mut fields = Fields::new("status", root.get("status").copied(), &mut reading);
        let conditions: Vec<MachineCondition> = fields.read("conditions").unwrap_or_default();
        let remediation = conditions.into_iter().find(|it| it.type_ == OWNER_REMEDIATED && it.status == "False");
        let failure = |fields: &mut Fields<'_, '_>| (text(fields, "failureReason"), text(fields, "failureMessage"));
        let (reason, message) = failure(&mut fields);
        let deprecated = failure(&mut fields.nested("deprecated").nested("v1beta1"));
        let status = MachineStatus {
            phase: text(&mut fields, "phase"),
            node_name: name(&mut fields.nested("nodeRef"), "name"),
            failure_reason: reason.or(deprecated.0),
            failure_message: message.or(deprecated.1),
            remediation: remediation.map(|it| truncate(&it.message)),
        };
        Ok(Machine { metadata, spec, status })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ClusterSpec,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSpec {
    pub(crate) paused: Option<bool>,
}

impl Cluster {
    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let (root, mut reading) = (split(json)?, Reading::unlimited());
        let paused = Fields::new("spec", root.get("spec").copied(), &mut reading).read("paused");
        Ok(Cluster { metadata: metadata(root.get("metadata").copied()), spec: ClusterSpec { paused } })
    }
}

/// The metadata of a bootstrap or infrastructure object. The API server sends nothing else of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderObjectMeta {
    pub(crate) metadata: ObjectMeta,
}

impl ProviderObjectMeta {
    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        Ok(ProviderObjectMeta { metadata: metadata(split(json)?.get("metadata").copied()) })
    }
}

/// Annotations of children that the controller reads.
const ANNOTATIONS: [&str; 4] =
    [keys::OWNER_UID_ANNOTATION, keys::SPEC_HASH_ANNOTATION, EXCLUDE_NODE_DRAINING, EXCLUDE_VOLUME_DETACH];
/// Of an annotation with a longer value, only the key is kept.
const MAX_ANNOTATION_LEN: usize = 256;
/// A longer providerID identifies no Node.
const MAX_PROVIDER_ID_LEN: usize = 1024;
const MAX_NAME_LEN: usize = 253;
/// Owners that are kept: controllers and ScheduledMachines.
const MAX_OWNERS: usize = 16;

fn name(fields: &mut Fields<'_, '_>, field: &str) -> Option<String> {
    fields.read(field).filter(|name: &String| !name.is_empty() && name.len() <= MAX_NAME_LEN)
}

fn text(fields: &mut Fields<'_, '_>, field: &str) -> Option<String> {
    fields.read(field).map(|text: String| truncate(&text))
}

/// The metadata that the controller uses. `managedFields` are never read: a tenant can nest them as deep as the API server
/// accepts.
fn metadata(json: Option<&RawValue>) -> ObjectMeta {
    let mut reading = Reading::unlimited();
    let mut fields = Fields::new("metadata", json, &mut reading);
    let mut annotations: BTreeMap<String, String> = fields.read("annotations").unwrap_or_default();
    annotations.retain(|key, _| ANNOTATIONS.contains(&key.as_str()));
    annotations.values_mut().filter(|it| it.len() > MAX_ANNOTATION_LEN).for_each(String::clear);
    let mut owners: Vec<OwnerReference> = fields.read("ownerReferences").unwrap_or_default();
    owners.retain(|it| it.controller == Some(true) || it.kind == "ScheduledMachine");
    owners.truncate(MAX_OWNERS);
    let deleted = fields.take("deletionTimestamp");
    ObjectMeta {
        name: fields.read("name"),
        namespace: fields.read("namespace"),
        uid: fields.read("uid"),
        resource_version: fields.read("resourceVersion"),
        creation_timestamp: fields.read("creationTimestamp"),
        // Only whether it is set matters.
        deletion_timestamp: deleted.map(|json| serde_json::from_str(json.get()).unwrap_or(Time(Timestamp::UNIX_EPOCH))),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: (!owners.is_empty()).then_some(owners),
        ..ObjectMeta::default()
    }
}

/// Whether a child belongs to the ScheduledMachine with this uid. Garbage collection can remove the ownerRef, so the
/// annotation proves it too.
pub(crate) fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    let annotated = metadata.annotations.as_ref().and_then(|it| it.get(keys::OWNER_UID_ANNOTATION));
    let referred = metadata.owner_references.iter().flatten().any(|it| it.uid == uid);
    referred || annotated.is_some_and(|it| it == uid)
}

/// The uid of the Machine that is the controller owner of a provider object.
pub(crate) fn adopted_by(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().find(|it| it.controller == Some(true) && it.kind == "Machine").map(|it| it.uid.clone())
}

macro_rules! resource {
    ($type:ty, metadata_api: $metadata_api:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let json = Box::<RawValue>::deserialize(deserializer)?;
                Self::decode(json.get()).map_err(de::Error::custom)
            }
        }

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

            fn metadata_api() -> bool {
                $metadata_api
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

resource!(Machine, metadata_api: false);
resource!(Cluster, metadata_api: false);
resource!(ProviderObjectMeta, metadata_api: true);
