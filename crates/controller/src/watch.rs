//! Hearing of what happens in the management cluster, and calling the objects that it concerns.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fivespot_api::ScheduledMachine;
use fivespot_core::children::ChildNames;
use futures::StreamExt as _;
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cache::{Cache, Heard};
use crate::cluster_api::{Cluster, Machine};
use crate::context::Context;
use crate::queue::Key;

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

    fn note_claims(&self, heard: &Heard<Machine>) {
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
    fn claimants(&self, heard: &Heard<Machine>) -> HashSet<Key> {
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
    fn expect_only(&self, keys: impl Iterator<Item = Key>) {
        *lock(&self.wanted_by) = keys.map(|key| (machine_of(&key), key)).collect();
    }

    fn expect(&self, key: &Key) {
        lock(&self.wanted_by).insert(machine_of(key), key.clone());
    }

    fn expect_no_more(&self, key: &Key) {
        lock(&self.wanted_by).remove(&machine_of(key));
    }

    fn wanted_by(&self, machine: &Machine) -> Option<Key> {
        self.object_of(&key(machine))
    }

    /// The object that has a Machine of this namespace and name.
    fn object_of(&self, machine: &Key) -> Option<Key> {
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

/// The key of an object.
pub(crate) fn key<K: Resource>(object: &K) -> Key {
    Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Hears of everything until the process ends. If a kind is not served any more, that is the answer.
pub(crate) async fn hear(context: Arc<Context>, namespace: Option<String>) -> Gone {
    let objects = match &namespace {
        Some(namespace) => Api::<ScheduledMachine>::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let machines = dynamic::<Machine>(&context, namespace.as_deref(), &context.served.machines);
    let clusters = dynamic::<Cluster>(&context, namespace.as_deref(), &context.served.clusters);
    tokio::select! {
        gone = follow("ScheduledMachine", objects, |event| hear_object(&context, event)) => gone,
        gone = follow("Machine", machines, |event| hear_machine(&context, event)) => gone,
        gone = follow("Cluster", clusters, |event| hear_cluster(&context, event)) => gone,
    }
}

/// A kind is not served any more.
pub(crate) struct Gone(pub(crate) &'static str);

fn dynamic<K>(context: &Context, namespace: Option<&str>, kind: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, kind),
        None => Api::all_with(context.client.clone(), kind),
    }
}

async fn follow<K>(kind: &'static str, api: Api<K>, hear: impl Fn(Event<K>)) -> Gone
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut stream = Box::pin(watch(api, watcher::Config::default()).default_backoff());
    loop {
        match stream.next().await {
            Some(Ok(event)) => hear(event),
            Some(Err(error)) if is_not_served(&error) => return Gone(kind),
            Some(Err(error)) => tracing::warn!(kind, error = fivespot_entry::chain(&error), "the watch failed"),
            None => return Gone(kind),
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            crate::trouble::api_status(error)
        }
        _ => None,
    };
    status.is_some_and(|it| it.code == 404)
}

fn hear_object(context: &Context, event: Event<ScheduledMachine>) {
    let event = event.modify(|object| object.metadata.managed_fields = None);
    let heard = context.objects.hear(event);
    context.count(&heard);
    match heard {
        Heard::Nothing => {}
        Heard::Changed { after, .. } => {
            context.machines.expect(&key(&after));
            context.queue.push(key(&after));
        }
        Heard::Gone { object, .. } => {
            context.machines.expect_no_more(&key(&object));
            context.queue.push(key(&object));
        }
        Heard::All => {
            let all = context.objects.all();
            context.machines.expect_only(all.iter().map(|it| key(it.as_ref())));
            for object in all {
                context.queue.push(key(object.as_ref()));
            }
        }
    }
}

fn hear_machine(context: &Context, event: Event<Machine>) {
    let heard = context.machines.cache.hear(event.modify(Machine::trim));
    // A Node that two claim is nobody's, so whoever else claims it is concerned too.
    let before = context.machines.claimants(&heard);
    context.machines.note_claims(&heard);
    let after = context.machines.claimants(&heard);
    if before != after {
        before.union(&after).filter_map(|it| context.machines.object_of(it)).for_each(|key| context.queue.push(key));
    }
    let concerned = match &heard {
        Heard::Nothing => None,
        Heard::Changed { before: Some(before), after } if is_the_same(before.as_ref(), after) => None,
        Heard::Changed { after, .. } => context.machines.wanted_by(after),
        Heard::Gone { object, .. } => context.machines.wanted_by(object),
        Heard::All => {
            context.objects.all().iter().for_each(|it| context.queue.push(key(it.as_ref())));
            None
        }
    };
    if let Some(key) = concerned {
        context.queue.push(key);
    }
}

fn hear_cluster(context: &Context, event: Event<Cluster>) {
    let (namespace, name) = match context.clusters.hear(event.modify(Cluster::trim)) {
        Heard::Nothing => return,
        Heard::Changed { before: Some(before), after } if is_the_same(before.as_ref(), &after) => return,
        Heard::Changed { after, .. } => (after.namespace(), Some(after.name_any())),
        Heard::Gone { object, .. } => (object.namespace(), Some(object.name_any())),
        Heard::All => (None, None),
    };
    for object in context.objects.all() {
        let machine = context.machines.of(&key(object.as_ref()));
        // A machine stays where it is when the spec is edited.
        let joins = name.as_ref().is_none_or(|name| {
            *name == object.spec.cluster_name || machine.is_some_and(|it| *name == it.spec.cluster_name)
        });
        if joins && namespace.as_ref().is_none_or(|it| Some(it) == object.namespace().as_ref()) {
            context.queue.push(key(object.as_ref()));
        }
    }
}

/// Whether nothing changed that anybody reads.
fn is_the_same<K: Resource + Clone + PartialEq>(before: &K, after: &K) -> bool {
    let without_version = |it: &K| {
        let mut it = it.clone();
        it.meta_mut().resource_version = None;
        it.meta_mut().generation = None;
        it
    };
    without_version(before) == without_version(after)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
