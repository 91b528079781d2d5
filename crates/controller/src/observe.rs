//! Every read: from the caches first, and from the API server itself where a decision asks for it.

mod closer;
mod node;

use fivespot_api::{Phase, ScheduledMachine, keys};
use fivespot_planner::children;
use fivespot_planner::observed::{self, Cluster, Health, Marks, Observed, Pods, Slot, Stored};
use fivespot_planner::status::stored_refs;
use fivespot_validation::validate::ValidSpec;
use kube::ResourceExt as _;

use crate::cluster_api::{self, Machine, NO_DRAIN, NO_VOLUMES, is_owned_by};
use crate::context::Context;
use crate::queue::Key;

pub(crate) use closer::pods_of;
pub(crate) use node::{is_requested, recorded_taints};

/// Who looks at an object and all that belongs to it.
#[derive(Clone, Copy)]
pub(crate) struct Eye<'a> {
    pub(crate) context: &'a Context,
    pub(crate) key: &'a Key,
    pub(crate) object: &'a ScheduledMachine,
}

impl Eye<'_> {
    /// What the caches show of an object. No request is sent.
    pub(crate) fn observe(&self, spec: Option<&ValidSpec>) -> Observed {
        let Eye { context, key, object } = *self;
        let status = object.status.clone().unwrap_or_default();
        let uid = object.uid().unwrap_or_default();
        let refs = stored_refs(&key.name, &status);
        let uids_known = [&status.bootstrap_ref, &status.infrastructure_ref]
            .iter()
            .all(|it| it.as_ref().is_some_and(|it| it.uid.is_some()));
        let known = context.machines.of(key);
        let machine = match &known {
            Some(machine) => machine_slot(machine, &uid),
            // A cache may lag behind: that a Machine is gone which was about to be made has to be seen for sure.
            None if refs.is_some() => Slot::NotRead,
            None => Slot::Absent,
        };
        let ours = known.as_deref().filter(|_| machine.ours().is_some());
        let joins = ours.map_or(&object.spec.cluster_name, |it| &it.spec.cluster_name);
        Observed {
            finalizer: object.finalizers().iter().any(|it| it == keys::FINALIZER),
            stored: Stored {
                refs,
                shutdown_started_at: status.shutdown_started_at.map(|it| it.0),
                reclaim: status.reclaim,
                reclaiming: status.phase == Some(Phase::EmergencyRemove),
                uids_known,
                node_uid: status.node_ref.and_then(|it| it.uid),
                applied_taints: status.applied_node_taints,
            },
            wanted: spec.map(|spec| children::wanted(&key.name, spec)),
            cluster: cluster(context, &key.namespace, joins),
            node: match machine {
                // Its cluster is not let go before it is known that there is none.
                Slot::NotRead => observed::Node::None,
                Slot::Absent | Slot::Foreign(_) | Slot::Ours(_) => node::observe(self, ours),
            },
            machine,
            bootstrap: Slot::NotRead,
            infrastructure: Slot::NotRead,
            pods: Pods::NotRead,
            held_off: None,
        }
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

/// What the Machine of our name is to the object of this uid. One that has gained another owner which controls it is
/// somebody else's.
fn machine_slot(machine: &Machine, uid: &str) -> Slot<observed::Machine> {
    let controlled = machine.owner_references().iter().any(|it| it.controller == Some(true));
    if controlled || !is_owned_by(&machine.metadata, uid) {
        return Slot::Foreign(machine.uid().unwrap_or_default());
    }
    let marked = |key: &str| machine.annotations().contains_key(key);
    Slot::Ours(observed::Machine {
        uid: machine.uid().unwrap_or_default(),
        deleting: machine.metadata.deletion_timestamp.is_some(),
        marks: Marks { no_drain: marked(NO_DRAIN), no_volumes: marked(NO_VOLUMES) },
        health: health(machine),
        node: node_name(machine),
        provider_id: machine.spec.provider_id.clone(),
        fingerprint: machine.annotations().get(keys::MADE_FROM_ANNOTATION).cloned(),
        created_at: machine.creation_timestamp().map(|it| it.0),
        confirmed: false,
    })
}

fn health(machine: &cluster_api::Machine) -> Health {
    match machine.failure() {
        Some(why) => Health::Failed(why),
        None if machine.status.phase.as_deref() == Some("Running") => Health::Running,
        None => Health::Provisioning,
    }
}

/// The Node that a Machine has become.
pub(crate) fn node_name(machine: &Machine) -> Option<String> {
    machine.status.node_ref.as_ref().map(|it| it.name.clone()).filter(|it| !it.is_empty())
}
