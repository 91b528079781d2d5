//! What all reconciles share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_planner::retry::RetryState;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::capi::{Cluster, KindResolver, MachineIndex, ServedApi};
use crate::clusters::{WorkloadClusters, has_reclaim_request};
use crate::object::StoredObject;
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::events::EventPublisher;
use crate::runtime::metrics::{Metrics, ObjectState};
use crate::runtime::permits::{Urgency, WritePermits};
use crate::runtime::shards::Shards;
use crate::runtime::workqueue::{Key, WorkQueue};

pub(crate) struct Context {
    /// Client of the management cluster.
    pub(crate) client: Client,
    pub(crate) served: ServedApi,
    pub(crate) kinds: KindResolver,
    pub(crate) objects: Cache<StoredObject>,
    pub(crate) machines: MachineIndex,
    pub(crate) clusters: Cache<Cluster>,
    pub(crate) workload_clusters: WorkloadClusters,
    pub(crate) queue: Arc<WorkQueue>,
    /// Only retry backoff is kept in memory; a restart retries immediately.
    retries: Mutex<HashMap<Key, RetryState>>,
    /// Objects that are not written before a time, because the API server requested it.
    postponed: Mutex<HashMap<Key, Instant>>,
    /// Objects whose last write has an unknown outcome.
    uncertain: Mutex<HashSet<Key>>,
    /// One permit for each write that may be in flight.
    pub(crate) writes: Arc<WritePermits>,
    pub(crate) events: EventPublisher,
    pub(crate) metrics: Arc<Metrics>,
    /// The objects that this instance acts on.
    pub(crate) shards: Arc<Shards>,
    pub(crate) shutdown: CancellationToken,
}

/// The parts of a [`Context`] that its creator provides.
pub(crate) struct ContextDeps {
    pub(crate) client: Client,
    pub(crate) served: ServedApi,
    pub(crate) workload_clusters: WorkloadClusters,
    pub(crate) queue: Arc<WorkQueue>,
    pub(crate) writes: Arc<WritePermits>,
    pub(crate) events: EventPublisher,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) shutdown: CancellationToken,
}

impl Context {
    pub(crate) fn new(parts: ContextDeps) -> Self {
        let ContextDeps { client, served, workload_clusters, queue, writes, events, metrics, shards, shutdown } = parts;
        Context {
            kinds: KindResolver::new(client.clone()),
            objects: Cache::new(()),
            machines: MachineIndex::new(served.machines.clone()),
            clusters: Cache::new(served.clusters.clone()),
            client,
            served,
            workload_clusters,
            queue,
            retries: Mutex::default(),
            postponed: Mutex::default(),
            uncertain: Mutex::default(),
            writes,
            events,
            metrics,
            shards,
            shutdown,
        }
    }

    /// Waits until all caches have been filled.
    pub(crate) async fn wait_until_ready(&self) {
        tokio::join!(
            self.objects.wait_until_ready(),
            self.machines.wait_until_ready(),
            self.clusters.wait_until_ready()
        );
    }

    /// Whether the outcome of the last write to this object is unknown.
    pub(super) fn is_uncertain(&self, key: &Key) -> bool {
        self.uncertain.lock().contains(key)
    }

    /// The outcome of a write to this object is unknown.
    pub(crate) fn mark_uncertain(&self, key: &Key) {
        self.uncertain.lock().insert(key.clone());
    }

    pub(super) fn mark_certain(&self, key: &Key) {
        self.uncertain.lock().remove(key);
    }

    /// Takes the retry state; only one reconcile of an object runs at a time.
    pub(crate) fn take_retry_state(&self, key: &Key) -> RetryState {
        self.retries.lock().remove(key).unwrap_or_default()
    }

    pub(crate) fn put_retry_state(&self, key: &Key, retry: RetryState) {
        if retry != RetryState::default() {
            self.retries.lock().insert(key.clone(), retry);
        }
    }

    /// Postpones writes of an object, as the API server requested.
    pub(super) fn postpone(&self, key: &Key, after: Duration) {
        self.postponed.lock().insert(key.clone(), Instant::now() + after);
    }

    /// How long writes of an object are still postponed.
    pub(super) fn postponed_for(&self, key: &Key) -> Option<Duration> {
        let mut postponed = self.postponed.lock();
        let left = postponed.get(key)?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            postponed.remove(key);
        }
        Some(left).filter(|left| !left.is_zero())
    }

    /// Makes an object due, if this instance acts on it.
    pub(crate) fn enqueue(&self, key: Key) {
        if self.shards.holds(&key) {
            self.queue.add(key);
        }
    }

    /// This instance has started or stopped to hold a shard. Each of its objects is reconciled, or forgotten.
    pub(crate) fn shard_changed(&self, shard: u32) {
        let is_held = self.shards.holds_shard(shard);
        self.metrics.set_shard_held(shard, is_held);
        let all = self.objects.all();
        let keys = all.iter().map(|object| Key::of(object.as_ref())).filter(|key| self.shards.shard_of(key) == shard);
        let mut objects = 0;
        for key in keys {
            self.queue.add(key);
            objects += 1;
        }
        self.recount_objects();
        if is_held {
            info!(shard, objects, "Acquired shard");
        } else {
            info!(shard, objects, "Stopped acting on shard");
        }
    }

    /// Whether the cache may lack what another instance wrote before this one acquired the shard of the object.
    pub(super) fn may_be_outdated(&self, key: &Key) -> bool {
        self.shards.may_be_outdated(key, self.objects.watched_version())
    }

    /// Updates the metrics of objects by phase and readiness. Each instance counts those that it acts on.
    pub(crate) fn count_object(&self, event: &CacheEvent<StoredObject>) {
        match event {
            CacheEvent::Unchanged | CacheEvent::Deleted { was_cached: false, .. } => {}
            CacheEvent::Applied { after: object, .. } | CacheEvent::Deleted { object, .. }
                if !self.shards.holds(&Key::of(object)) => {}
            CacheEvent::Applied { before, after } => {
                self.metrics.move_object(before.as_deref().map(state).unwrap_or_default(), state(after));
            }
            CacheEvent::Deleted { object, was_cached: true } => {
                self.metrics.move_object(state(object), ObjectState::default());
            }
            CacheEvent::Resynced => self.recount_objects(),
        }
    }

    fn recount_objects(&self) {
        let all = self.objects.all();
        let held = all.iter().filter(|object| self.shards.holds(&Key::of(object.as_ref())));
        self.metrics.recount_objects(held.map(|object| state(object)));
    }

    /// Updates the metric of entries in memory, which shows a leak.
    pub(crate) fn record_entries(&self) {
        let (owners, claims) = self.machines.entries();
        let (objects_with_node, connections) = self.workload_clusters.entries();
        for (map, entries) in [
            ("queue", self.queue.len()),
            ("retries", self.retries.lock().len()),
            ("uncertain", self.uncertain.lock().len()),
            ("postponed", self.postponed.lock().len()),
            ("overdue", self.metrics.overdue_entries()),
            ("machine_owners", owners),
            ("machine_claims", claims),
            ("objects_with_node", objects_with_node),
            ("connections", connections),
        ] {
            self.metrics.set_entries(map, entries);
        }
    }

    /// Whether an owner or an administrator waits for the machine to be removed. Urgency decides the order of reconciles and
    /// how soon one is retried, never what it does.
    pub(crate) fn is_urgent(&self, key: &Key, object: &StoredObject) -> bool {
        let killed = object.spec.kill_switch && object.phase() != Some(Phase::Terminated);
        killed || object.is_reclaim_in_progress() || self.is_reclaim_requested(key, object).unwrap_or_default()
    }

    /// Whether the latest known state of an object is urgent.
    pub(crate) fn urgency(&self, key: &Key) -> Urgency {
        let object = self.objects.get(&key.namespace, &key.name);
        let is_urgent = object.is_some_and(|object| self.is_urgent(key, &object));
        if is_urgent { Urgency::Urgent } else { Urgency::Ordinary }
    }

    fn is_reclaim_requested(&self, key: &Key, object: &StoredObject) -> Option<bool> {
        object.spec.kill_if_commands.as_ref().filter(|commands| !commands.is_empty())?;
        let node_name = self.machines.get(key)?.node_name()?;
        let node = self.workload_clusters.client_for(key)?.cached_node(&node_name)?;
        Some(has_reclaim_request(&node))
    }

    /// Drops everything that is kept about an object that was deleted, or that another instance acts on.
    pub(crate) fn forget(&self, key: &Key) {
        self.mark_certain(key);
        self.retries.lock().remove(key);
        self.postponed.lock().remove(key);
        self.workload_clusters.release(key);
    }
}

fn state(object: &StoredObject) -> ObjectState {
    ObjectState { phase: object.phase(), not_ready: object.not_ready() }
}
