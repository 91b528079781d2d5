//! The Lease of a shard: its name, what it says, and how it is changed.

use std::collections::BTreeMap;
use std::time::Duration;

use fivespot_api::keys;
use fivespot_planner::shards::lease::{Identity, Instance, LeaseAction, LeaseRecord, Partition};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt as _;

/// Names of the Leases: the prefix and the number of the shard.
const NAME_PREFIX: &str = "5spot-shard-";
/// What another program may have written as the duration of a Lease is limited to this.
const MAX_DURATION: Duration = Duration::from_hours(1);

pub(super) fn lease_name(shard: u32) -> String {
    format!("{NAME_PREFIX}{shard}")
}

pub(super) fn shard_of_lease(lease: &Lease) -> Option<u32> {
    let name = lease.metadata.name.as_deref()?;
    let shard = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
    (lease_name(shard) == name).then_some(shard)
}

pub(super) fn version(lease: &Lease) -> u64 {
    lease.metadata.resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// What a Lease says. Anyone who may write Leases may have written it.
pub(super) fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let identity = |text: String| Some(Identity(text)).filter(|it| !it.0.is_empty());
    let annotation = |key: &str| lease.annotations().get(key).cloned();
    let count = annotation(keys::INSTANCE_COUNT_ANNOTATION).and_then(|it| it.parse().ok());
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    LeaseRecord {
        version: version(lease),
        holder: spec.holder_identity.and_then(identity),
        transitions: spec.lease_transitions.unwrap_or_default(),
        renewal: spec.renew_time.map(|it| it.0.to_string()).unwrap_or_default(),
        partition: count.map(|count| Partition {
            count,
            namespace: annotation(keys::WATCHED_NAMESPACE_ANNOTATION).unwrap_or_default(),
        }),
        duration: Duration::from_secs(seconds).min(MAX_DURATION),
        requested_by: annotation(keys::REQUESTED_BY_ANNOTATION).and_then(identity),
    }
}

pub(super) fn new_lease(shard: u32, namespace: &str) -> Lease {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Lease {
        metadata: ObjectMeta {
            name: Some(lease_name(shard)),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([
                label("app.kubernetes.io/name", "5-spot"),
                label("app.kubernetes.io/component", "controller"),
            ])),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

pub(super) fn change(mut lease: Lease, instance: &Instance, action: LeaseAction) -> Lease {
    let now = Some(MicroTime(Timestamp::now()));
    let spec = lease.spec.get_or_insert_default();
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match action {
        LeaseAction::Acquire => {
            *spec = LeaseSpec {
                holder_identity: Some(instance.identity.0.clone()),
                lease_duration_seconds: i32::try_from(instance.lease_duration.as_secs()).ok(),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: Some(spec.lease_transitions.unwrap_or_default().saturating_add(1)),
                ..spec.clone()
            };
            annotations.insert(keys::INSTANCE_COUNT_ANNOTATION.to_owned(), instance.partition.count.to_string());
            annotations.insert(keys::WATCHED_NAMESPACE_ANNOTATION.to_owned(), instance.partition.namespace.clone());
            annotations.remove(keys::REQUESTED_BY_ANNOTATION);
        }
        LeaseAction::Renew => spec.renew_time = now,
        LeaseAction::Request => {
            annotations.insert(keys::REQUESTED_BY_ANNOTATION.to_owned(), instance.identity.0.clone());
        }
        LeaseAction::Release => spec.holder_identity = None,
    }
    lease
}
