//! An index of Machines: which ScheduledMachine each one belongs to, and which of them claim the same Node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fivespot_planner::children::ChildNames;
use parking_lot::Mutex;

use super::types::{Machine, SharedResource};
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::workqueue::Key;

pub(crate) struct MachineIndex {
    pub(crate) cache: Cache<Machine>,
    /// By providerID, the Machines that claim a provider's machine, each with the name of its Cluster.
    claims: Mutex<HashMap<String, HashMap<Key, String>>>,
    /// The ScheduledMachine of each Machine key, whether the Machine exists or not.
    owners: Mutex<HashMap<Key, Key>>,
}

/// Whose Machines may have a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimants {
    /// Those of one Cluster: its kubeconfig says where the Node is.
    OfOneCluster,
    /// Those of all Clusters and namespaces: the Node is in the management cluster, which they share.
    OfAllClusters,
}

impl MachineIndex {
    pub(crate) fn new(kind: SharedResource) -> Self {
        MachineIndex { cache: Cache::reporting_own_writes(kind), claims: Mutex::default(), owners: Mutex::default() }
    }

    /// The Machine with the name that a ScheduledMachine gives its own.
    pub(crate) fn get(&self, owner: &Key) -> Option<Arc<Machine>> {
        self.cache.get(&owner.namespace, &ChildNames::of(&owner.name).machine)
    }

    /// Whether no other Machine has the same providerID.
    pub(crate) fn is_sole_claimant(&self, machine: &Machine, among: Claimants) -> bool {
        let Some(provider_id) = &machine.spec.provider_id else { return false };
        let own = Key::of(machine);
        let is_rival = |(other, cluster): (&Key, &String)| match among {
            Claimants::OfOneCluster => {
                *other != own && other.namespace == own.namespace && *cluster == machine.spec.cluster_name
            }
            Claimants::OfAllClusters => *other != own,
        };
        !self.claims.lock().get(provider_id).into_iter().flatten().any(is_rival)
    }

    /// Applies a Machine that was just read or created.
    pub(crate) fn apply_read(&self, machine: Machine) {
        self.update_claims(&self.cache.apply_read(machine));
    }

    pub(crate) fn apply_write_response(&self, machine: Machine) {
        self.update_claims(&self.cache.apply_write_response(machine));
    }

    /// Removes the Machine of a ScheduledMachine that the API server reports as not found.
    pub(crate) fn mark_deleted(&self, owner: &Key) {
        if let Some(cached) = self.get(owner) {
            self.update_claims(&self.cache.mark_deleted(&cached));
        }
    }

    pub(crate) fn update_claims(&self, event: &CacheEvent<Machine>) {
        let mut claims = self.claims.lock();
        match event {
            CacheEvent::Unchanged => {}
            CacheEvent::Deleted { object, .. } => remove_claim(&mut claims, object),
            CacheEvent::Applied { before, after } => {
                if let Some(before) = before {
                    remove_claim(&mut claims, before);
                }
                add_claim(&mut claims, after);
            }
            CacheEvent::Resynced => {
                claims.clear();
                self.cache.all().iter().for_each(|machine| add_claim(&mut claims, machine));
            }
        }
    }

    /// The Machines that claim what the Machine of an event claims, or claimed before it.
    pub(crate) fn claimants(&self, event: &CacheEvent<Machine>) -> HashSet<Key> {
        let provider_ids = match event {
            CacheEvent::Applied { before, after } => {
                [before.as_deref().and_then(|before| before.spec.provider_id.as_ref()), after.spec.provider_id.as_ref()]
            }
            CacheEvent::Deleted { object, .. } => [object.spec.provider_id.as_ref(), None],
            CacheEvent::Unchanged | CacheEvent::Resynced => return HashSet::new(),
        };
        let claims = self.claims.lock();
        provider_ids.into_iter().flatten().filter_map(|id| claims.get(id)).flat_map(HashMap::keys).cloned().collect()
    }

    /// Replaces all owners, after a list of ScheduledMachines.
    pub(crate) fn set_owners(&self, owners: impl Iterator<Item = Key>) {
        *self.owners.lock() = owners.map(|owner| (machine_key(&owner), owner)).collect();
    }

    pub(crate) fn add_owner(&self, owner: &Key) {
        self.owners.lock().insert(machine_key(owner), owner.clone());
    }

    pub(crate) fn remove_owner(&self, owner: &Key) {
        self.owners.lock().remove(&machine_key(owner));
    }

    /// The ScheduledMachine that has a Machine of this name, whether the Machine is managed by it or not.
    pub(crate) fn owner_of(&self, machine: &Machine) -> Option<Key> {
        self.owner_by_key(&Key::of(machine))
    }

    pub(crate) fn owner_by_key(&self, machine: &Key) -> Option<Key> {
        self.owners.lock().get(machine).cloned()
    }
}

fn add_claim(claims: &mut HashMap<String, HashMap<Key, String>>, machine: &Machine) {
    if let Some(provider_id) = machine.spec.provider_id.clone() {
        claims.entry(provider_id).or_default().insert(Key::of(machine), machine.spec.cluster_name.clone());
    }
}

fn remove_claim(claims: &mut HashMap<String, HashMap<Key, String>>, machine: &Machine) {
    let Some(provider_id) = &machine.spec.provider_id else { return };
    let Some(claimants) = claims.get_mut(provider_id) else { return };
    claimants.remove(&Key::of(machine));
    if claimants.is_empty() {
        claims.remove(provider_id);
    }
}

fn machine_key(owner: &Key) -> Key {
    Key { namespace: owner.namespace.clone(), name: ChildNames::of(&owner.name).machine }
}

#[cfg(test)]
mod tests {
    use fivespot_planner::children::MachineVersion;
    use fivespot_planner::observed::Exclusions;
    use kube::core::ObjectMeta;

    use super::super::types::{MachineSpec, MachineStatus, Ownership, ServedApi};
    use super::*;

    fn machine(namespace: &str, name: &str, cluster: &str) -> Machine {
        Machine {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ownership: Ownership::default(),
            exclusions: Exclusions::default(),
            spec: MachineSpec { cluster_name: cluster.to_owned(), provider_id: Some("host-1".to_owned()) },
            status: MachineStatus::default(),
        }
    }

    #[test]
    fn node_of_the_management_cluster_is_claimed_across_namespaces_and_clusters() {
        let index = MachineIndex::new(ServedApi::new(MachineVersion::V1Beta2).machines);
        let own = machine("team", "desk", "edge");
        index.apply_read(own.clone());
        let is_sole = |among| index.is_sole_claimant(&own, among);
        assert!(is_sole(Claimants::OfOneCluster) && is_sole(Claimants::OfAllClusters));
        for (other, is_sole_of_cluster) in [
            (machine("other", "desk", "edge"), true),
            (machine("team", "other", "far"), true),
            (machine("team", "other", "edge"), false),
        ] {
            index.apply_read(other.clone());
            assert_eq!(
                (is_sole(Claimants::OfOneCluster), is_sole(Claimants::OfAllClusters)),
                (is_sole_of_cluster, false)
            );
            let deleted = CacheEvent::Deleted { object: other, was_cached: true };
            assert_eq!(index.claimants(&deleted).len(), 2, "both are reconciled");
            index.update_claims(&deleted);
            assert!(is_sole(Claimants::OfAllClusters));
        }
    }
}
