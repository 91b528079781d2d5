//! An index of Machines: which ScheduledMachine each one belongs to, and which of them claim the same Node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fivespot_planner::children::ChildNames;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::types::{Machine, SharedResource};
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::workqueue::Key;

pub(crate) struct MachineIndex {
    cache: Cache<Machine>,
    claims: Mutex<Claims>,
    /// The ScheduledMachine of each Machine key, whether the Machine exists or not.
    owners: Mutex<HashMap<Key, Key>>,
}

/// The Machines that claim a provider's machine.
type Claims = HashMap<Claim, HashSet<Key>>;

/// A provider's machine. Each Machine with a providerID claims it twice: in its Cluster, and in all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    provider_id: String,
    /// Namespace and name of the Cluster; `None` for all Clusters.
    cluster: Option<(String, String)>,
}

/// Whose Machines may have a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimants {
    /// Those of one Cluster: its kubeconfig says where the Node is.
    OfOneCluster,
    /// Those of all Clusters and namespaces: the Node is in the management cluster, which they share.
    OfAllClusters,
}

impl Claimants {
    const ALL: [Claimants; 2] = [Claimants::OfOneCluster, Claimants::OfAllClusters];
}

impl MachineIndex {
    pub(crate) fn new(kind: SharedResource) -> Self {
        MachineIndex { cache: Cache::reporting_own_writes(kind), claims: Mutex::default(), owners: Mutex::default() }
    }

    /// The Machine with the name that a ScheduledMachine gives its own.
    pub(crate) fn get(&self, owner: &Key) -> Option<Arc<Machine>> {
        self.cache.get(&owner.namespace, &ChildNames::of(&owner.name).machine)
    }

    /// Waits until all Machines have been listed. Only one task may wait.
    pub(crate) async fn wait_until_ready(&self) {
        self.cache.wait_until_ready().await;
    }

    /// Entries about ScheduledMachines, and about claims of Machines.
    pub(crate) fn entries(&self) -> (usize, usize) {
        (self.owners.lock().len(), self.claims.lock().len())
    }

    /// Whether no other Machine has the same providerID.
    pub(crate) fn is_sole_claimant(&self, machine: &Machine, among: Claimants) -> bool {
        let is_sole = |claim| self.claims.lock().get(&claim).is_none_or(|claimants| claimants.len() <= 1);
        claim(machine, among).is_some_and(is_sole)
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

    /// Applies an event of the watch. Returns the Machines too that are, or were, one of two with the same claim: a Node that
    /// two Machines claim belongs to neither.
    pub(crate) fn apply_watch_event(&self, event: Event<Machine>) -> (CacheEvent<Machine>, HashSet<Key>) {
        let event = self.cache.apply_watch_event(event);
        let concerned = self.update_claims(&event);
        (event, concerned)
    }

    /// Updates the claims after a change of the cache. What is cached by then counts, not the event: responses and the watch
    /// can change the same Machine at the same time, and be here in the other order.
    fn update_claims(&self, event: &CacheEvent<Machine>) -> HashSet<Key> {
        let mut claims = self.claims.lock();
        let (machine, before) = match event {
            CacheEvent::Unchanged => return HashSet::new(),
            CacheEvent::Deleted { object, .. } => (object, Some(object)),
            CacheEvent::Applied { before, after } => (after, before.as_deref()),
            CacheEvent::Resynced => {
                claims.clear();
                for machine in self.cache.all() {
                    for claim in Claimants::ALL.into_iter().filter_map(|among| claim(&machine, among)) {
                        claims.entry(claim).or_default().insert(Key::of(machine.as_ref()));
                    }
                }
                return HashSet::new();
            }
        };
        let key = Key::of(machine);
        let cached = self.cache.get(&key.namespace, &key.name);
        let mut concerned = HashSet::new();
        for among in Claimants::ALL {
            let claim_of = |machine: &Machine| claim(machine, among);
            let (from, to) = (before.and_then(claim_of), cached.as_deref().and_then(claim_of));
            concerned.extend(move_claim(&mut claims, &key, from, to));
        }
        concerned
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

/// Moves a Machine from one claim to another. Returns the Machines for which a claim became ambiguous or unambiguous: of more
/// than two, none is concerned.
fn move_claim(claims: &mut Claims, machine: &Key, from: Option<Claim>, to: Option<Claim>) -> HashSet<Key> {
    let mut concerned = HashSet::new();
    if from == to {
        return concerned;
    }
    if let Some(from) = from
        && let Some(claimants) = claims.get_mut(&from)
    {
        claimants.remove(machine);
        if claimants.len() == 1 {
            concerned.extend(claimants.iter().cloned());
        } else if claimants.is_empty() {
            claims.remove(&from);
        }
    }
    if let Some(to) = to {
        let claimants = claims.entry(to).or_default();
        if claimants.insert(machine.clone()) && claimants.len() == 2 {
            concerned.extend(claimants.iter().cloned());
        }
    }
    concerned
}

fn claim(machine: &Machine, among: Claimants) -> Option<Claim> {
    let provider_id = machine.spec.provider_id.clone()?;
    let cluster = || (machine.namespace().unwrap_or_default(), machine.spec.cluster_name.clone());
    Some(match among {
        Claimants::OfOneCluster => Claim { provider_id, cluster: Some(cluster()) },
        Claimants::OfAllClusters => Claim { provider_id, cluster: None },
    })
}

fn machine_key(owner: &Key) -> Key {
    Key { namespace: owner.namespace.clone(), name: ChildNames::of(&owner.name).machine }
}

#[cfg(test)]
mod tests {
    use fivespot_planner::children::MachineVersion;
    use serde_json::json;

    use super::*;
    use crate::capi::ServedApi;

    fn index() -> MachineIndex {
        MachineIndex::new(ServedApi::new(MachineVersion::ALL[0]).machines)
    }

    fn machine(name: &str, version: u64, provider_id: &str) -> Machine {
        let metadata =
            json!({ "name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string() });
        let spec = json!({ "clusterName": "edge", "providerID": provider_id });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn apply(index: &MachineIndex, machine: Machine) -> Vec<String> {
        names(index.apply_watch_event(Event::Apply(machine)).1)
    }

    fn names(keys: HashSet<Key>) -> Vec<String> {
        let mut names: Vec<String> = keys.into_iter().map(|key| key.name).collect();
        names.sort();
        names
    }

    #[test]
    fn machines_are_concerned_when_a_claim_becomes_ambiguous_or_unambiguous() {
        let index = index();
        assert!(apply(&index, machine("a", 1, "p1")).is_empty());
        assert_eq!(apply(&index, machine("b", 2, "p1")), ["a", "b"]);
        assert!(!index.is_sole_claimant(&machine("a", 1, "p1"), Claimants::OfOneCluster));
        // Nothing changes for two that are claimed twice already.
        assert!(apply(&index, machine("c", 3, "p1")).is_empty());
        assert!(apply(&index, machine("c", 4, "p2")).is_empty());
        // A change of anything else concerns no other Machine.
        assert!(apply(&index, machine("a", 5, "p1")).is_empty());
        assert_eq!(apply(&index, machine("b", 6, "p2")), ["a", "b", "c"]);
        assert!(index.is_sole_claimant(&machine("a", 5, "p1"), Claimants::OfOneCluster));
        let (_, concerned) = index.apply_watch_event(Event::Delete(machine("b", 7, "p2")));
        assert_eq!(names(concerned), ["c"]);
        index.mark_deleted(&Key { namespace: "team".to_owned(), name: "none".to_owned() });
        for (name, provider_id) in [("a", "p1"), ("c", "p2")] {
            index.apply_watch_event(Event::Delete(machine(name, 8, provider_id)));
        }
        assert!(index.claims.lock().is_empty());
    }

    #[test]
    fn claims_follow_the_cache_in_whatever_order_changes_arrive() {
        let claimed = |index: &MachineIndex| -> Vec<String> {
            let of_cluster = |claim: &&Claim| claim.cluster.is_some();
            index.claims.lock().keys().filter(of_cluster).map(|claim| claim.provider_id.clone()).collect()
        };
        let started = || {
            let index = index();
            apply(&index, machine("a", 1, "p1"));
            index
        };

        // A response, then a deletion.
        let index = started();
        let response = index.cache.apply_write_response(machine("a", 2, "p1"));
        let deletion = index.cache.apply_watch_event(Event::Delete(machine("a", 3, "p1")));
        index.update_claims(&deletion);
        index.update_claims(&response);
        assert!(claimed(&index).is_empty(), "a Machine that does not exist claims a Node");

        // A deletion, then a Machine with the same name.
        let index = started();
        let deletion = index.cache.apply_watch_event(Event::Delete(machine("a", 2, "p1")));
        let created = index.cache.apply_read(machine("a", 3, "p1"));
        index.update_claims(&created);
        index.update_claims(&deletion);
        assert_eq!(claimed(&index), ["p1"]);

        // The watch delivers an own write after the response to the next one.
        let index = started();
        index.apply_write_response(machine("a", 2, "p1"));
        apply(&index, machine("a", 2, "p1"));
        index.apply_write_response(machine("a", 3, "p2"));
        index.apply_write_response(machine("a", 4, "p3"));
        apply(&index, machine("a", 3, "p2"));
        apply(&index, machine("a", 4, "p3"));
        assert_eq!(claimed(&index), ["p3"]);
    }

    #[test]
    fn node_of_the_management_cluster_is_claimed_across_namespaces_and_clusters() {
        let in_cluster = |namespace: &str, name: &str, cluster: &str| {
            let mut machine = machine(name, 1, "p1");
            machine.metadata.namespace = Some(namespace.to_owned());
            machine.spec.cluster_name = cluster.to_owned();
            machine
        };
        let (index, own) = (index(), in_cluster("team", "desk", "edge"));
        index.apply_watch_event(Event::Apply(own.clone()));
        let is_sole = |among| index.is_sole_claimant(&own, among);
        assert!(is_sole(Claimants::OfOneCluster) && is_sole(Claimants::OfAllClusters));
        for (other, is_sole_of_cluster) in [
            (in_cluster("other", "desk", "edge"), true),
            (in_cluster("team", "other", "far"), true),
            (in_cluster("team", "other", "edge"), false),
        ] {
            let (_, concerned) = index.apply_watch_event(Event::Apply(other.clone()));
            assert_eq!(concerned.len(), 2, "both are reconciled");
            assert_eq!(
                (is_sole(Claimants::OfOneCluster), is_sole(Claimants::OfAllClusters)),
                (is_sole_of_cluster, false)
            );
            let (_, concerned) = index.apply_watch_event(Event::Delete(other));
            assert_eq!(concerned, HashSet::from([Key::of(&own)]));
            assert!(is_sole(Claimants::OfAllClusters));
        }
    }
}
