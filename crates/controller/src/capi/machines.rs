//! An index of Machines: which ScheduledMachine each one belongs to, and which of them claim the same Node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fivespot_planner::children::ChildNames;
use kube::ResourceExt as _;
use parking_lot::Mutex;

use super::types::{Machine, SharedResource};
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::workqueue::Key;

pub(crate) struct MachineIndex {
    pub(crate) cache: Cache<Machine>,
    /// Names of the Machines that claim a provider's machine.
    claims: Mutex<HashMap<Claim, HashSet<String>>>,
    /// The ScheduledMachine of each Machine key, whether the Machine exists or not.
    owners: Mutex<HashMap<Key, Key>>,
}

/// A provider's machine: namespace and name of the Cluster, and the providerID.
type Claim = (String, String, String);

impl MachineIndex {
    pub(crate) fn new(kind: SharedResource) -> Self {
        MachineIndex { cache: Cache::reporting_own_writes(kind), claims: Mutex::default(), owners: Mutex::default() }
    }

    /// The Machine with the name that a ScheduledMachine gives its own.
    pub(crate) fn get(&self, owner: &Key) -> Option<Arc<Machine>> {
        self.cache.get(&owner.namespace, &ChildNames::of(&owner.name).machine)
    }

    /// Whether no other Machine of the same Cluster has the same providerID.
    pub(crate) fn is_sole_claimant(&self, machine: &Machine) -> bool {
        claim(machine).is_some_and(|claim| self.claims.lock().get(&claim).is_none_or(|names| names.len() <= 1))
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
        let mut remove = |machine: &Machine| {
            if let Some(claim) = claim(machine)
                && let Some(names) = claims.get_mut(&claim)
            {
                names.remove(&machine.name_any());
                if names.is_empty() {
                    claims.remove(&claim);
                }
            }
        };
        match event {
            CacheEvent::Unchanged => {}
            CacheEvent::Deleted { object, .. } => remove(object),
            CacheEvent::Applied { before, after } => {
                if let Some(before) = before {
                    remove(before);
                }
                if let Some(claim) = claim(after) {
                    claims.entry(claim).or_default().insert(after.name_any());
                }
            }
            CacheEvent::Resynced => {
                claims.clear();
                for machine in self.cache.all() {
                    if let Some(claim) = claim(&machine) {
                        claims.entry(claim).or_default().insert(machine.name_any());
                    }
                }
            }
        }
    }

    /// The Machines that claim what the Machine of an event claims, or claimed before it.
    pub(crate) fn claimants(&self, event: &CacheEvent<Machine>) -> HashSet<Key> {
        let (namespace, claims) = match event {
            CacheEvent::Applied { before, after } => {
                (after.namespace(), vec![before.as_deref().and_then(claim), claim(after)])
            }
            CacheEvent::Deleted { object, .. } => (object.namespace(), vec![claim(object)]),
            CacheEvent::Unchanged | CacheEvent::Resynced => return HashSet::new(),
        };
        let namespace = namespace.unwrap_or_default();
        let known = self.claims.lock();
        let names = claims.into_iter().flatten().filter_map(|claim| known.get(&claim)).flatten();
        names.map(|name| Key { namespace: namespace.clone(), name: name.clone() }).collect()
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

fn claim(machine: &Machine) -> Option<Claim> {
    let provider_id = machine.spec.provider_id.clone()?;
    Some((machine.namespace().unwrap_or_default(), machine.spec.cluster_name.clone(), provider_id))
}

fn machine_key(owner: &Key) -> Key {
    Key { namespace: owner.namespace.clone(), name: ChildNames::of(&owner.name).machine }
}
