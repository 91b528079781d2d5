//! What the controller reads from the objects of workload clusters.
//!
//! A few bytes of JSON can become a large value: an empty object in a list is one, of several hundred bytes. The API server
//! of a workload cluster belongs to a tenant, so only the fields that are used are decoded, and every list has a maximum.

use std::collections::BTreeMap;
use std::fmt;

use fivespot_api::keys;
use fivespot_validation::names::{is_dns_label, is_dns_subdomain};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::bounded::{Bounded, First, Text};

/// Objects in a page of a list. Fewer are requested; not every server honours that exactly.
const MAX_PAGE_ITEMS: usize = 500;
const MAX_TAINTS: usize = 128;
/// Owners that are kept. An author of pods can list any number of them.
const MAX_OWNERS: usize = 64;
/// Entries that are kept of the data of a ConfigMap: one is expected, the names of others are read to remove them.
const MAX_ENTRIES: usize = 32;
/// Longer strings are cut off; none that the controller writes or expects is longer.
const MAX_NAME: usize = 512;
const MAX_UID: usize = 128;
const MAX_ANNOTATION: usize = 1024;
/// Of the taints that were applied, and of the agent configuration.
const MAX_VALUE: usize = 64 * 1024;

/// A Node without the fields that are never read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "WireNode")]
pub(crate) struct WorkloadNode(pub(crate) Node);

/// A ConfigMap without the fields that are never read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "WireConfigMap")]
pub(crate) struct WorkloadConfigMap(pub(crate) ConfigMap);

/// A pod without the fields that are never read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "WirePod")]
pub(crate) struct WorkloadPod(pub(crate) Pod);

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(default = "Bounded::default")]
    pub(crate) items: Bounded<T, MAX_PAGE_ITEMS>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    pub(crate) resource_version: Option<Text<MAX_NAME>>,
    pub(crate) r#continue: Option<Text<MAX_VALUE>>,
}

/// What identifies an object that cannot be decoded, or that is a bookmark.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireIdentity {
    pub(super) metadata: IdentityMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct IdentityMeta {
    pub(super) name: Option<Text<MAX_NAME>>,
    pub(super) resource_version: Option<Text<MAX_NAME>>,
}

/// The object of a watch event of type `ERROR`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireStatus {
    pub(super) code: u16,
    pub(super) message: Text<MAX_NAME>,
}

/// The labels or annotations that are read.
#[derive(Debug, Default)]
struct OwnEntries(BTreeMap<String, String>);

/// The agent configuration in the data of a ConfigMap. Of other entries only the first names are kept.
#[derive(Debug, Default)]
struct ConfigData(BTreeMap<String, String>);

/// The condition `Ready` of a list of conditions.
#[derive(Debug, Default)]
struct ReadyCondition(Option<NodeCondition>);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta {
    name: Option<Text<MAX_NAME>>,
    namespace: Option<Text<MAX_NAME>>,
    uid: Option<Text<MAX_UID>>,
    resource_version: Option<Text<MAX_NAME>>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<OwnEntries>,
    annotations: Option<OwnEntries>,
    owner_references: Option<First<WireOwner, MAX_OWNERS>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireOwner {
    api_version: Text<MAX_NAME>,
    kind: Text<MAX_NAME>,
    name: Text<MAX_NAME>,
    uid: Text<MAX_UID>,
    controller: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WireNode {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireNodeSpec>,
    status: Option<WireNodeStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<Text<MAX_NAME>>,
    unschedulable: Option<bool>,
    taints: Option<Bounded<Taint, MAX_TAINTS>>,
}

#[derive(Debug, Deserialize)]
struct WireNodeStatus {
    conditions: Option<ReadyCondition>,
}

#[derive(Debug, Deserialize)]
struct WireConfigMap {
    #[serde(default)]
    metadata: WireMeta,
    data: Option<ConfigData>,
}

#[derive(Debug, Deserialize)]
struct WirePod {
    #[serde(default)]
    metadata: WireMeta,
    status: Option<WirePodStatus>,
}

#[derive(Debug, Deserialize)]
struct WirePodStatus {
    phase: Option<Text<MAX_NAME>>,
}

impl From<WireMeta> for ObjectMeta {
    fn from(meta: WireMeta) -> Self {
        let owners = meta.owner_references.map(|owners| owners.0.into_iter().map(OwnerReference::from).collect());
        ObjectMeta {
            name: meta.name.map(|it| it.0),
            namespace: meta.namespace.map(|it| it.0),
            uid: meta.uid.map(|it| it.0),
            resource_version: meta.resource_version.map(|it| it.0),
            deletion_timestamp: meta.deletion_timestamp,
            deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
            labels: meta.labels.map(|it| it.0),
            annotations: meta.annotations.map(|it| it.0),
            owner_references: owners,
            ..ObjectMeta::default()
        }
    }
}

impl From<WireOwner> for OwnerReference {
    fn from(owner: WireOwner) -> Self {
        OwnerReference {
            api_version: owner.api_version.0,
            kind: owner.kind.0,
            name: owner.name.0,
            uid: owner.uid.0,
            controller: owner.controller,
            ..OwnerReference::default()
        }
    }
}

impl TryFrom<WireNode> for WorkloadNode {
    type Error = &'static str;

    fn try_from(node: WireNode) -> Result<Self, Self::Error> {
        // A cache has one entry for each namespace and name, so a Node has none of the server's choice.
        let metadata = ObjectMeta { owner_references: None, namespace: None, ..node.metadata.into() };
        if !metadata.name.as_deref().is_some_and(is_dns_subdomain) {
            return Err("a Node has no valid name");
        }
        let spec = node.spec.map(|spec| NodeSpec {
            provider_id: spec.provider_id.map(|it| it.0),
            unschedulable: spec.unschedulable,
            taints: spec.taints.map(|it| it.0),
            ..NodeSpec::default()
        });
        // Taints are written as a whole, so they are never cut off.
        let mut taints = spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
        let is_too_long = |taint: &Taint| {
            let value = taint.value.as_deref().unwrap_or_default();
            [&taint.key, &taint.effect, value].iter().any(|text| text.len() > MAX_NAME)
        };
        if taints.any(is_too_long) {
            return Err("a taint is too long");
        }
        let status = node.status.map(|status| NodeStatus {
            conditions: Some(status.conditions.unwrap_or_default().0.into_iter().collect()),
            ..NodeStatus::default()
        });
        Ok(WorkloadNode(Node { metadata, spec, status }))
    }
}

impl TryFrom<WireConfigMap> for WorkloadConfigMap {
    type Error = &'static str;

    fn try_from(config: WireConfigMap) -> Result<Self, Self::Error> {
        let metadata = ObjectMeta::from(config.metadata);
        if !has_namespaced_name(&metadata) {
            return Err("a ConfigMap has no valid name and namespace");
        }
        let data = config.data.map(|data| data.0);
        Ok(WorkloadConfigMap(ConfigMap { metadata, data, ..ConfigMap::default() }))
    }
}

fn has_namespaced_name(metadata: &ObjectMeta) -> bool {
    metadata.name.as_deref().is_some_and(is_dns_subdomain) && metadata.namespace.as_deref().is_some_and(is_dns_label)
}

impl TryFrom<WirePod> for WorkloadPod {
    type Error = &'static str;

    fn try_from(pod: WirePod) -> Result<Self, Self::Error> {
        let metadata = ObjectMeta::from(pod.metadata);
        // Names of pods and namespaces end up in paths and in the status.
        if !has_namespaced_name(&metadata) {
            return Err("a pod has no valid name and namespace");
        }
        let phase = pod.status.and_then(|status| status.phase).map(|phase| phase.0);
        Ok(WorkloadPod(Pod { metadata, spec: None, status: Some(PodStatus { phase, ..PodStatus::default() }) }))
    }
}

/// Delegates to the type of the Kubernetes API.
macro_rules! resource {
    ($type:ty, $object:ty, $scope:ty) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                <$object as Resource>::kind(&())
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                <$object as Resource>::group(&())
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                <$object as Resource>::version(&())
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                <$object as Resource>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.0.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.0.metadata
            }
        }
    };
}

resource!(WorkloadNode, Node, ClusterResourceScope);
resource!(WorkloadConfigMap, ConfigMap, NamespaceResourceScope);
resource!(WorkloadPod, Pod, NamespaceResourceScope);

/// Annotation of a mirror pod, which a drain ignores.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The labels and annotations that are read, besides the taints that were applied.
const READ_KEYS: [&str; 7] = [
    keys::RECLAIM_AGENT_LABEL,
    keys::RECLAIM_REQUESTED_ANNOTATION,
    keys::RECLAIM_REASON_ANNOTATION,
    keys::RECLAIM_REQUESTED_AT_ANNOTATION,
    keys::RECLAIM_AGENT_MACHINE_ANNOTATION,
    keys::CORDONED_BY_ANNOTATION,
    MIRROR_ANNOTATION,
];

impl<'de> Deserialize<'de> for OwnEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keep = |key: &str| match key {
            keys::APPLIED_TAINTS_ANNOTATION => Keep::Value { max: MAX_VALUE },
            _ if READ_KEYS.contains(&key) => Keep::Value { max: MAX_ANNOTATION },
            _ => Keep::Nothing,
        };
        deserializer.deserialize_map(Entries { keep }).map(OwnEntries)
    }
}

impl<'de> Deserialize<'de> for ConfigData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keep =
            |key: &str| if key == keys::RECLAIM_CONFIG_KEY { Keep::Value { max: MAX_VALUE } } else { Keep::Name };
        deserializer.deserialize_map(Entries { keep }).map(ConfigData)
    }
}

/// What is kept of an entry.
enum Keep {
    Value {
        max: usize,
    },
    /// The key with an empty value.
    Name,
    Nothing,
}

/// Keeps parts of a map.
struct Entries<F> {
    keep: F,
}

impl<'de, F: Fn(&str) -> Keep> Visitor<'de> for Entries<F> {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(Text(key)) = map.next_key::<Text<MAX_NAME>>()? {
            match (self.keep)(&key) {
                Keep::Value { max } => {
                    let Text(mut value) = map.next_value::<Option<Text<MAX_VALUE>>>()?.unwrap_or_default();
                    value.truncate(value.floor_char_boundary(max));
                    value.shrink_to_fit();
                    entries.insert(key, value);
                }
                Keep::Name if entries.len() < MAX_ENTRIES => {
                    map.next_value::<IgnoredAny>()?;
                    entries.insert(key, String::new());
                }
                Keep::Name | Keep::Nothing => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(entries)
    }
}

impl<'de> Deserialize<'de> for ReadyCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct WireCondition {
            r#type: Text<MAX_NAME>,
            status: Text<MAX_NAME>,
        }
        struct FindReady;
        impl<'de> Visitor<'de> for FindReady {
            type Value = ReadyCondition;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of conditions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut ready = None;
                while let Some(WireCondition { r#type: Text(type_), status: Text(status) }) = seq.next_element()? {
                    if type_ == "Ready" {
                        ready = Some(NodeCondition { type_, status, ..NodeCondition::default() });
                    }
                }
                Ok(ReadyCondition(ready))
            }
        }
        deserializer.deserialize_seq(FindReady)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_owners_and_entries_do_not_fail_and_are_not_kept() {
        let owners = vec![json!({ "kind": "ConfigMap", "name": "a", "uid": "b" }); 1000];
        let pod = json!({ "metadata": { "name": "p", "namespace": "team", "uid": "u".repeat(1000), "ownerReferences": owners } });
        let WorkloadPod(pod) = serde_json::from_value(pod).unwrap();
        assert_eq!(pod.metadata.owner_references.unwrap().len(), MAX_OWNERS);
        assert_eq!(pod.metadata.uid.unwrap().len(), MAX_UID);

        let long = "v".repeat(100_000);
        let mut annotations: BTreeMap<String, String> =
            (0..1000).map(|it| (format!("{}/{it}", keys::GROUP), long.clone())).collect();
        annotations.insert(keys::RECLAIM_REASON_ANNOTATION.to_owned(), long.clone());
        let WorkloadNode(node) =
            serde_json::from_value(json!({ "metadata": { "name": "n1", "annotations": annotations } })).unwrap();
        let kept = node.metadata.annotations.unwrap();
        assert_eq!((kept.len(), kept[keys::RECLAIM_REASON_ANNOTATION].len()), (1, MAX_ANNOTATION));

        let mut data: BTreeMap<String, String> = (0..1000).map(|it| (it.to_string(), long.clone())).collect();
        data.insert(keys::RECLAIM_CONFIG_KEY.to_owned(), "config".to_owned());
        let config = json!({ "metadata": { "name": "c1", "namespace": "agents" }, "data": data });
        let WorkloadConfigMap(config) = serde_json::from_value(config).unwrap();
        let kept = config.data.unwrap();
        assert_eq!((kept.len(), kept[keys::RECLAIM_CONFIG_KEY].as_str(), kept["1"].as_str()), (33, "config", ""));
    }
}
