//! The fields of Cluster API objects that the controller reads, in either version of Cluster API.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use fivespot_api::keys;
use fivespot_planner::children::MachineVersion;
use fivespot_planner::observed::Exclusions;
use fivespot_validation::names::is_dns_subdomain;
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
    pub(crate) machines: SharedResource,
    pub(crate) clusters: SharedResource,
}

/// An API resource that is shared by the keys of a cache: each of them has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedResource(Arc<ApiResource>);

impl Deref for SharedResource {
    type Target = ApiResource;

    fn deref(&self) -> &ApiResource {
        &self.0
    }
}

impl ServedApi {
    pub(crate) fn new(version: MachineVersion) -> Self {
        let resource = |kind: &str, plural: &str| {
            let kind = GroupVersionKind::gvk(GROUP, version.as_str(), kind);
            SharedResource(Arc::new(ApiResource::from_gvk_with_plural(&kind, plural)))
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
    /// Without annotations and owners.
    pub(crate) metadata: ObjectMeta,
    pub(crate) ownership: Ownership,
    pub(crate) exclusions: Exclusions,
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
        let ChildMetadata { metadata, ownership, exclusions } = metadata(root.get("metadata").copied());
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
        Ok(Machine { metadata, ownership, exclusions, spec, status })
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
        Ok(Cluster { metadata: metadata(root.get("metadata").copied()).metadata, spec: ClusterSpec { paused } })
    }
}

/// The metadata of a bootstrap or infrastructure object. The API server sends nothing else of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderObjectMeta {
    /// Without annotations and owners.
    pub(crate) metadata: ObjectMeta,
    pub(crate) ownership: Ownership,
}

impl ProviderObjectMeta {
    fn decode(json: &str) -> Result<Self, serde_json::Error> {
        let ChildMetadata { metadata, ownership, .. } = metadata(split(json)?.get("metadata").copied());
        Ok(ProviderObjectMeta { metadata, ownership })
    }
}

/// A child of a ScheduledMachine.
pub(crate) trait Child: Resource {
    fn ownership(&self) -> &Ownership;
}

/// Whose child an object is, and what it was created from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ownership {
    /// Uids of ScheduledMachines, from ownerReferences and from the annotation.
    uids: Vec<Box<str>>,
    /// Kind and uid of the owner that is the controller; empty if they are longer than any of a Machine.
    controller: Option<(Box<str>, Box<str>)>,
    pub(crate) fingerprint: Option<String>,
}

impl Ownership {
    /// Whether the child belongs to the ScheduledMachine with this uid. Garbage collection can remove the ownerRef, so the
    /// annotation proves it too.
    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        self.uids.iter().any(|it| &**it == uid)
    }

    /// Kind of the owner that is the controller.
    pub(crate) fn controller_kind(&self) -> Option<&str> {
        self.controller.as_ref().map(|(kind, _)| &**kind)
    }

    /// The uid of the Machine that is the controller owner of a provider object.
    pub(crate) fn adopted_by(&self) -> Option<String> {
        self.controller.as_ref().filter(|(kind, _)| &**kind == "Machine").map(|(_, uid)| uid.to_string())
    }
}

struct ChildMetadata {
    metadata: ObjectMeta,
    ownership: Ownership,
    exclusions: Exclusions,
}

/// A longer kind, uid or hash is none that matters. The API server limits neither those of owners nor annotations.
const MAX_OWNERSHIP_LEN: usize = 256;
/// A longer providerID identifies no Node.
const MAX_PROVIDER_ID_LEN: usize = 1024;
/// ScheduledMachines among the owners that are kept.
const MAX_OWNERS: usize = 16;

/// The name of an object. Anything else could become part of a request path.
fn name(fields: &mut Fields<'_, '_>, field: &str) -> Option<String> {
    fields.read(field).filter(|name: &String| is_dns_subdomain(name))
}

fn text(fields: &mut Fields<'_, '_>, field: &str) -> Option<String> {
    fields.read(field).map(|text: String| truncate(&text))
}

/// The metadata that the controller uses. `managedFields` are never read: a tenant can nest them as deep as the API server
/// accepts.
fn metadata(json: Option<&RawValue>) -> ChildMetadata {
    let mut reading = Reading::unlimited();
    let mut fields = Fields::new("metadata", json, &mut reading);
    let mut annotations: BTreeMap<String, String> = fields.read("annotations").unwrap_or_default();
    let exclusions = Exclusions {
        node_drain: annotations.contains_key(EXCLUDE_NODE_DRAINING),
        volume_detach: annotations.contains_key(EXCLUDE_VOLUME_DETACH),
    };
    let is_bounded = |text: &str| text.len() <= MAX_OWNERSHIP_LEN;
    let mut annotation = |key: &str| annotations.remove(key).filter(|it| is_bounded(it));
    let owners: Vec<OwnerReference> = fields.read("ownerReferences").unwrap_or_default();
    let controller = owners.iter().find(|it| it.controller == Some(true));
    let is_scheduled_machine = |it: &&OwnerReference| it.kind == "ScheduledMachine" && is_bounded(&it.uid);
    let scheduled_machines = owners.iter().filter(is_scheduled_machine).map(|it| it.uid.clone());
    let uids = annotation(keys::OWNER_UID_ANNOTATION).into_iter().chain(scheduled_machines.take(MAX_OWNERS));
    let ownership = Ownership {
        uids: uids.map(String::into_boxed_str).collect(),
        // A controller with a longer kind or uid stays one: it is not this ScheduledMachine.
        controller: controller.map(|it| {
            let bounded = |text: &str| if is_bounded(text) { text.into() } else { Box::default() };
            (bounded(&it.kind), bounded(&it.uid))
        }),
        fingerprint: annotation(keys::SPEC_HASH_ANNOTATION),
    };
    let deleted = fields.take("deletionTimestamp");
    let metadata = ObjectMeta {
        name: fields.read("name"),
        namespace: fields.read("namespace"),
        uid: fields.read("uid"),
        resource_version: fields.read("resourceVersion"),
        creation_timestamp: fields.read("creationTimestamp"),
        // Only whether it is set matters.
        deletion_timestamp: deleted.map(|json| serde_json::from_str(json.get()).unwrap_or(Time(Timestamp::UNIX_EPOCH))),
        ..ObjectMeta::default()
    };
    ChildMetadata { metadata, ownership, exclusions }
}

macro_rules! resource {
    ($type:ty, $dynamic_type:ty, metadata_api: $metadata_api:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let json = Box::<RawValue>::deserialize(deserializer)?;
                Self::decode(json.get()).map_err(de::Error::custom)
            }
        }

        impl Resource for $type {
            type DynamicType = $dynamic_type;
            type Scope = DynamicResourceScope;

            fn kind(of: &$dynamic_type) -> Cow<'_, str> {
                Cow::Borrowed(&of.kind)
            }

            fn group(of: &$dynamic_type) -> Cow<'_, str> {
                Cow::Borrowed(&of.group)
            }

            fn version(of: &$dynamic_type) -> Cow<'_, str> {
                Cow::Borrowed(&of.version)
            }

            fn api_version(of: &$dynamic_type) -> Cow<'_, str> {
                Cow::Borrowed(&of.api_version)
            }

            fn plural(of: &$dynamic_type) -> Cow<'_, str> {
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

resource!(Machine, SharedResource, metadata_api: false);
resource!(Cluster, SharedResource, metadata_api: false);
resource!(ProviderObjectMeta, ApiResource, metadata_api: true);

impl Child for Machine {
    fn ownership(&self) -> &Ownership {
        &self.ownership
    }
}

impl Child for ProviderObjectMeta {
    fn ownership(&self) -> &Ownership {
        &self.ownership
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(metadata: &Value, rest: &Value) -> Machine {
        let mut json = json!({ "metadata": metadata });
        json.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Machine::decode(&json.to_string()).unwrap()
    }

    fn owner(kind: &str, uid: &str, controller: bool) -> Value {
        json!({ "apiVersion": "x/v1", "kind": kind, "name": "a", "uid": uid, "controller": controller })
    }

    #[test]
    fn owners_are_kept_in_bounded_length() {
        let long = "a".repeat(1_000_000);
        let ownership_of = |owners: Vec<Value>| machine(&json!({ "ownerReferences": owners }), &json!({})).ownership;
        for (kind, uid) in [(long.as_str(), "u1"), ("MachineSet", &long), ("Machine", &long)] {
            let ownership = ownership_of(vec![owner(kind, uid, true), owner("ScheduledMachine", "u2", false)]);
            let (kind, uid) = ownership.controller.as_ref().expect("a controller with a long kind or uid stays one");
            assert!(kind.len() <= MAX_OWNERSHIP_LEN && uid.len() <= MAX_OWNERSHIP_LEN);
            assert!(ownership.is_owned_by("u2"));
        }
        let ownership = ownership_of(vec![owner("ScheduledMachine", &long, false)]);
        assert!(ownership.uids.is_empty() && ownership.controller.is_none());
        let ownership = ownership_of(vec![owner("Machine", "u1", true)]);
        assert_eq!((ownership.controller_kind(), ownership.adopted_by().as_deref()), (Some("Machine"), Some("u1")));
    }

    #[test]
    fn only_valid_names_are_kept() {
        let names_of = |name: &str| {
            let fields = json!({ "spec": { "clusterName": name }, "status": { "nodeRef": { "name": name } } });
            let machine = machine(&json!({}), &fields);
            (machine.spec.cluster_name, machine.status.node_name)
        };
        assert_eq!(names_of("desk-01.lab"), ("desk-01.lab".to_owned(), Some("desk-01.lab".to_owned())));
        for invalid in ["desk-01/status", "../secrets", "a?watch=true", "", &"a".repeat(254)] {
            assert_eq!(names_of(invalid), (String::new(), None), "{invalid}");
        }
    }
}
