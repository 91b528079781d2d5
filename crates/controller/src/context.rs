//! What every pass shares.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use fivespot_api::ScheduledMachine;
use fivespot_planner::patience::Patience;
use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::announce::Announcer;
use crate::cache::{Cache, Heard};
use crate::cluster_api::{Cluster, Served};
use crate::discovery::Kinds;
use crate::lock::lock;
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::queue::{Key, Queue};
use crate::workload::Workloads;

/// What every pass shares.
pub(crate) struct Context {
    /// The management cluster.
    pub(crate) client: Client,
    /// What Cluster API is called there.
    pub(crate) served: Served,
    /// The kinds of providers there.
    pub(crate) kinds: Kinds,
    /// What is known of ScheduledMachines.
    pub(crate) objects: Cache<ScheduledMachine>,
    /// What is known of Machines.
    pub(crate) machines: Machines,
    /// What is known of Clusters.
    pub(crate) clusters: Cache<Cluster>,
    /// The clusters that machines join.
    pub(crate) workloads: Workloads,
    /// Which object is looked at next.
    pub(crate) queue: Arc<Queue>,
    /// What is remembered of each object between passes.
    patience: Mutex<HashMap<Key, Patience>>,
    /// Of whom it is not known what is stored, since a write of them was not answered well.
    doubted: Mutex<HashSet<Key>>,
    /// So many writes may be under way at once.
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: Arc<Metrics>,
    /// The process is to end.
    pub(crate) stopping: CancellationToken,
}

/// What a context is made of that is not made by itself.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) served: Served,
    pub(crate) workloads: Workloads,
    pub(crate) queue: Arc<Queue>,
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) announcer: Announcer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: CancellationToken,
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { client, served, workloads, queue, writes, announcer, metrics, stopping } = parts;
        Context {
            kinds: Kinds::new(client.clone()),
            objects: Cache::new(()),
            machines: Machines::new(served.machines.clone()),
            clusters: Cache::new(served.clusters.clone()),
            client,
            served,
            workloads,
            queue,
            patience: Mutex::default(),
            doubted: Mutex::default(),
            writes,
            announcer,
            metrics,
            stopping,
        }
    }

    /// Whether everything that there was at the start has been heard of.
    pub(crate) fn is_synced(&self) -> bool {
        self.objects.is_synced() && self.machines.cache.is_synced() && self.clusters.is_synced()
    }

    /// What is remembered of an object. Only one pass at a time has it.
    pub(crate) fn recall(&self, key: &Key) -> Patience {
        lock(&self.patience).remove(key).unwrap_or_default()
    }

    /// Remembers something of an object until its next pass.
    pub(crate) fn remember(&self, key: &Key, patience: Patience) {
        if patience != Patience::default() {
            lock(&self.patience).insert(key.clone(), patience);
        }
    }

    /// Counts the phase that an object is in now, and no longer the one that it was in.
    pub(crate) fn count(&self, heard: &Heard<ScheduledMachine>) {
        let phase = |it: &ScheduledMachine| it.status.as_ref().and_then(|it| it.phase);
        match heard {
            Heard::Nothing | Heard::Gone { was_known: false, .. } => {}
            Heard::Changed { before, after } => self.metrics.moved(before.as_deref().and_then(phase), phase(after)),
            Heard::Gone { object, was_known: true } => self.metrics.moved(phase(object), None),
            Heard::All => self.metrics.recount(self.objects.all().iter().filter_map(|it| phase(it))),
        }
    }

    /// It is not known what is stored of an object.
    pub(crate) fn doubt(&self, key: &Key) {
        lock(&self.doubted).insert(key.clone());
    }

    /// Whether it is not known what is stored of an object.
    pub(crate) fn is_doubted(&self, key: &Key) -> bool {
        lock(&self.doubted).contains(key)
    }

    /// It is known again.
    pub(crate) fn trust(&self, key: &Key) {
        lock(&self.doubted).remove(key);
    }

    /// An object is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.trust(key);
        lock(&self.patience).remove(key);
        self.workloads.release(key);
    }
}
