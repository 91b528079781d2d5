//! Every read that a decision depends on: from the caches first, from API servers where a cache is not enough.

mod live_read;
mod node;

use std::sync::Arc;

use fivespot_api::keys;
use fivespot_planner::children;
use fivespot_planner::intent::stored_refs;
use fivespot_planner::observed::{self, Absence, Child, Cluster, MachineHealth, Observed, Pods, Stored};
use fivespot_validation::validate::ValidSpec;
use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::error::ReconcileError;
use crate::capi::Machine;
use crate::object::StoredObject;
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, send, truncate};
use crate::runtime::workqueue::Key;

pub(super) use live_read::{live_read, pods_on_node};
pub(super) use node::recorded_taints;

/// The latest known state of an object. After a write with an unknown outcome it is read from the API server: a cache that
/// does not have that write yet could show an intent that has been dropped.
pub(super) async fn latest(context: &Context, key: &Key) -> Result<Option<Arc<StoredObject>>, ReconcileError> {
    if context.is_uncertain(key) {
        let objects: Api<StoredObject> = Api::namespaced(context.client.clone(), &key.namespace);
        let operation = Operation::new("read", format!("ScheduledMachine {key}"));
        match send(MANAGEMENT_TIMEOUT, operation, objects.get_opt(&key.name)).await? {
            Some(object) => context.count_object(&context.objects.apply_read(object)),
            None => {
                if let Some(cached) = context.objects.get(&key.namespace, &key.name) {
                    context.count_object(&context.objects.mark_deleted(&cached));
                }
            }
        }
        context.mark_certain(key);
    }
    Ok(context.objects.get(&key.namespace, &key.name))
}

/// What the caches show of an object. Sends no request.
pub(super) fn from_caches(context: &Context, key: &Key, object: &StoredObject, spec: Option<&ValidSpec>) -> Observed {
    let status = object.status();
    let uid = object.uid().unwrap_or_default();
    let refs = stored_refs(&key.name, &status, object.unobserved_intent.as_deref());
    let has_child_uids = [&status.bootstrap_ref, &status.infrastructure_ref]
        .iter()
        .all(|reference| reference.as_ref().is_some_and(|reference| reference.uid.is_some()));
    let cached = context.machines.get(key);
    let machine = match &cached {
        Some(machine) => machine_child(machine, &uid),
        // The cache may lag behind: the absence of a Machine that was about to be created has to be confirmed.
        None if refs.is_some() => Child::NotRead,
        None => Child::Absent,
    };
    let managed = cached.as_deref().filter(|_| machine.managed().is_some());
    let cluster_name = managed.map_or(&object.spec.cluster_name, |machine| &machine.spec.cluster_name);
    Observed {
        has_finalizer: object.finalizers().iter().any(|it| it == keys::FINALIZER),
        stored: Stored {
            refs,
            has_child_uids,
            shutdown_started_at: status.shutdown_started_at.map(|it| it.0),
            initial_pods: status.initial_pods,
            machine_failure: status.machine_failure,
            reclaim: status.reclaim,
            node_uid: status.node_ref.and_then(|it| it.uid),
            applied_taints: status.applied_node_taints,
        },
        desired: spec.map(|spec| children::desired(&key.name, spec)),
        cluster: cluster(context, &key.namespace, cluster_name),
        node: match machine {
            // The connection to the workload cluster is kept until it is certain that there is no Machine.
            Child::NotRead => observed::Node::Absent(Absence::NotJoined),
            Child::Absent | Child::Unmanaged(_) | Child::Managed(_) => node::observe(context, key, object, managed),
        },
        machine,
        bootstrap: Child::NotRead,
        infrastructure: Child::NotRead,
        pods: Pods::NotRead,
    }
}

fn cluster(context: &Context, namespace: &str, name: &str) -> Cluster {
    match context.clusters.get(namespace, name) {
        None => Cluster::Missing,
        Some(it) if it.metadata.deletion_timestamp.is_some() => Cluster::Deleting,
        Some(it) if it.spec.paused == Some(true) => Cluster::Paused,
        Some(_) => Cluster::Present,
    }
}

/// The Machine with the child's name. One that has gained a controller owner is no longer managed.
fn machine_child(machine: &Machine, uid: &str) -> Child<observed::Machine> {
    let ownership = &machine.ownership;
    if ownership.controller_kind().is_some() || !ownership.is_owned_by(uid) {
        return Child::Unmanaged(machine.uid().unwrap_or_default());
    }
    Child::Managed(observed::Machine {
        name: machine.name_any(),
        uid: machine.uid().unwrap_or_default(),
        deleting: machine.metadata.deletion_timestamp.is_some(),
        exclusions: machine.exclusions,
        health: health(machine),
        node: machine.node_name(),
        provider_id: machine.spec.provider_id.clone(),
        fingerprint: ownership.fingerprint.clone(),
        created_at: machine.creation_timestamp().map(|it| it.0),
        live: false,
    })
}

fn health(machine: &Machine) -> MachineHealth {
    match machine.failure() {
        Some(reason) => MachineHealth::Failed(truncate(&reason)),
        None if machine.status.phase.as_deref() == Some("Running") => MachineHealth::Running,
        None => MachineHealth::Provisioning,
    }
}
