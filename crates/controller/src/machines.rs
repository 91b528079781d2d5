//! What is known of Machines: whose they are, and which of them claim the same Node.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use fivespot_planner::children::ChildNames;
use kube::ResourceExt as _;
use kube::api::ApiResource;

use crate::cache::{Cache, Heard};
use crate::cluster_api::Machine;
use crate::lock::lock;
use crate::queue::Key;
use crate::watch::key;

/// What is known of Machines.
pub(crate) struct Machines {
    pub(crate) cache: Cache<Machine>,
    /// Which Machines of a Cluster say that a provider's machine is theirs.
    claims: Mutex<HashMap<Claim, HashSet<String>>>,
    /// Which object has a Machine of this namespace and name.
    wanted_by: Mutex<HashMap<Key, Key>>,
}

/// A provider's machine, by the namespace and name of the Cluster and the provider's identifier.
type Claim = (String, String, String);

impl Machines {
    pub(crate) fn new(kind: ApiResource) -> Self {
        Machines { cache: Cache::that_tells_again(kind), claims: Mutex::default(), wanted_by: Mutex::default() }
    }

    /// Whether no other Machine of its Cluster says that a Machine's Node is its own.
    pub(crate) fn is_alone(&self, machine: &Machine) -> bool {
        claim(machine).is_some_and(|claim| lock(&self.claims).get(&claim).is_none_or(|it| it.len() <= 1))
    }

    /// The Machine of the name that an object gives to its own.
    pub(crate) fn of(&self, object: &Key) -> Option<Arc<Machine>> {
        self.cache.get(&object.namespace, &ChildNames::of(&object.name).machine)
    }

    /// Takes a Machine that we made, or that we asked for.
    pub(crate) fn saw(&self, mut machine: Machine) {
        machine.trim();
        self.note_claims(&self.cache.saw(machine));
    }

    /// Takes the answer to a write of ours.
    pub(crate) fn wrote(&self, mut machine: Machine) {
        machine.trim();
        self.note_claims(&self.cache.wrote(machine));
    }

    pub(crate) fn note_claims(&self, heard: &Heard<Machine>) {
        let mut claims = lock(&self.claims);
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
        match heard {
            Heard::Nothing => {}
            Heard::Gone { object, .. } => remove(object),
            Heard::Changed { before, after } => {
                if let Some(before) = before {
                    remove(before);
                }
                if let Some(claim) = claim(after) {
                    claims.entry(claim).or_default().insert(after.name_any());
                }
            }
            Heard::All => {
                claims.clear();
                for machine in self.cache.all() {
                    if let Some(claim) = claim(&machine) {
                        claims.entry(claim).or_default().insert(machine.name_any());
                    }
                }
            }
        }
    }

    /// The Machines that claim what a Machine claims that was heard of.
    pub(crate) fn claimants(&self, heard: &Heard<Machine>) -> HashSet<Key> {
        let (namespace, claims) = match heard {
            Heard::Changed { before, after } => {
                (after.namespace(), [before.as_deref().and_then(claim), claim(after)].to_vec())
            }
            Heard::Gone { object, .. } => (object.namespace(), vec![claim(object)]),
            Heard::Nothing | Heard::All => return HashSet::new(),
        };
        let known = lock(&self.claims);
        let names = claims.into_iter().flatten().filter_map(|it| known.get(&it)).flatten();
        names.map(|name| Key { namespace: namespace.clone().unwrap_or_default(), name: name.clone() }).collect()
    }

    /// Takes it that the Machine of an object is not there any more.
    pub(crate) fn found_gone(&self, object: &Key) {
        if let Some(known) = self.of(object) {
            self.note_claims(&self.cache.found_gone(&known));
        }
    }

    /// These objects have Machines, and no others.
    pub(crate) fn expect_only(&self, keys: impl Iterator<Item = Key>) {
        *lock(&self.wanted_by) = keys.map(|key| (machine_of(&key), key)).collect();
    }

    pub(crate) fn expect(&self, key: &Key) {
        lock(&self.wanted_by).insert(machine_of(key), key.clone());
    }

    pub(crate) fn expect_no_more(&self, key: &Key) {
        lock(&self.wanted_by).remove(&machine_of(key));
    }

    pub(crate) fn wanted_by(&self, machine: &Machine) -> Option<Key> {
        self.object_of(&key(machine))
    }

    /// The object that has a Machine of this namespace and name.
    pub(crate) fn object_of(&self, machine: &Key) -> Option<Key> {
        lock(&self.wanted_by).get(machine).cloned()
    }
}

fn claim(machine: &Machine) -> Option<Claim> {
    let provider_id = machine.spec.provider_id.clone()?;
    Some((machine.namespace().unwrap_or_default(), machine.spec.cluster_name.clone(), provider_id))
}

fn machine_of(key: &Key) -> Key {
    Key { namespace: key.namespace.clone(), name: ChildNames::of(&key.name).machine }
}
