//! Holds the Leases of shards, as [`LeaseTable`] decides: one watch of all Leases, and writes that carry the
//! `resourceVersion` of what they are based on, so that of two instances one wins.

mod object;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fivespot_api::keys;
use fivespot_planner::shards::lease::{Instance, LeaseAction, LeaseTable, Uptime};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use self::object::{change, lease_name, new_lease, record, shard_of_lease, version};
use crate::runtime::health::Health;
use crate::runtime::request::{Operation, RequestError, send};
use crate::runtime::shards::{Shards, uptime};
use crate::runtime::watches::{NotServed, watch};

/// Attempts to release a Lease that others change at the same time.
const RELEASE_ATTEMPTS: usize = 3;
/// The delay after a request that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Leases {
    api: Api<Lease>,
    namespace: String,
    /// How long a request may take: a renewal that hangs must leave time for another one.
    timeout: Duration,
    state: Mutex<State>,
    /// A Lease changed, or a request is complete.
    changed: Notify,
    shards: Arc<Shards>,
    health: Arc<Health>,
    on_change: OnChange,
}

/// Called when this instance starts or stops to hold a shard.
type OnChange = Box<dyn Fn(u32) + Send + Sync>;

struct State {
    table: LeaseTable,
    /// The Leases by shard, to be written with what others added to them.
    objects: BTreeMap<u32, Lease>,
    /// A list in progress.
    listed: BTreeMap<u32, Lease>,
    is_synced: bool,
    /// When a request may be sent again after a failure.
    retry_at: BTreeMap<u32, Uptime>,
    /// What was logged last about instances that divide the objects differently.
    blocked_by: Option<String>,
}

impl Leases {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        instance: Instance,
        (shards, health): (Arc<Shards>, Arc<Health>),
        on_change: impl Fn(u32) + Send + Sync + 'static,
    ) -> Self {
        info!(identity = %instance.identity, instances = instance.partition.count, namespace, "Using Leases");
        Leases {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            timeout: instance.renew_after(),
            state: Mutex::new(State {
                table: LeaseTable::new(instance),
                objects: BTreeMap::new(),
                listed: BTreeMap::new(),
                is_synced: false,
                retry_at: BTreeMap::new(),
                blocked_by: None,
            }),
            changed: Notify::new(),
            shards,
            health,
            on_change: Box::new(on_change),
        }
    }

    /// Watches the Leases until the API server no longer serves them.
    pub(crate) async fn watch(&self) -> NotServed {
        watch("Lease", self.api.clone(), &self.health, |event| self.handle(event)).await
    }

    fn handle(&self, event: Event<Lease>) {
        let now = uptime();
        let mut state = self.state.lock();
        match event {
            Event::Init => state.listed.clear(),
            Event::InitApply(lease) => {
                if let Some(shard) = shard_of_lease(&lease) {
                    state.listed.insert(shard, lease);
                }
            }
            Event::InitDone => {
                state.objects = std::mem::take(&mut state.listed);
                let records = state.objects.iter().map(|(shard, lease)| (*shard, record(lease))).collect();
                state.table.resynced(records, now);
                state.is_synced = true;
            }
            Event::Apply(lease) => {
                if let Some(shard) = shard_of_lease(&lease) {
                    state.table.watched(shard, record(&lease), now);
                    state.keep_newer(shard, lease);
                }
            }
            Event::Delete(lease) => {
                if let Some(shard) = shard_of_lease(&lease) {
                    warn!(shard, lease = lease.name_any(), "Lease was deleted");
                    state.table.deleted(shard);
                    state.objects.remove(&shard);
                }
            }
        }
        drop(state);
        self.publish();
        self.changed.notify_one();
    }

    /// Acquires, renews and releases Leases.
    pub(crate) async fn run(&self) -> ! {
        let mut requests = FuturesUnordered::new();
        let mut busy = BTreeSet::new();
        loop {
            let (actions, wake_at) = self.decide(&busy);
            for (shard, action, lease) in actions {
                busy.insert(shard);
                requests.push(async move { (shard, self.perform(shard, action, lease).await) }.boxed());
            }
            let timer = async {
                match wake_at {
                    Some(at) => tokio::time::sleep(at.saturating_sub(uptime())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((shard, result)) = requests.next() => {
                    busy.remove(&shard);
                    self.complete(shard, result);
                }
                () = self.changed.notified() => {}
                () = timer => {}
            }
            // A term may have ended.
            self.publish();
        }
    }

    /// What to do now with the Lease to be written, except for shards with a request in flight, and when to decide again.
    fn decide(&self, busy: &BTreeSet<u32>) -> (Vec<(u32, LeaseAction, Lease)>, Option<Uptime>) {
        let mut state = self.state.lock();
        if !state.is_synced {
            return (Vec::new(), None);
        }
        let now = uptime();
        state.log_other_partition(now);
        let mut decision = state.table.decide(now);
        decision.actions.retain(|shard, _| !busy.contains(shard));
        let mut wake_at: Vec<Uptime> = decision.wake_at.into_iter().collect();
        decision.actions.retain(|shard, _| match state.retry_at.get(shard) {
            Some(at) if now < *at => {
                wake_at.push(*at);
                false
            }
            Some(_) | None => true,
        });
        let terms = (0..self.shards.count()).filter_map(|shard| state.table.term(shard, now));
        wake_at.extend(terms.map(|term| term.write_until));
        // Under the same lock: the version that is written must be the one that the decision is based on.
        let actions =
            decision.actions.into_iter().map(|(shard, action)| (shard, action, self.desired(&state, shard, action)));
        (actions.collect(), wake_at.into_iter().min())
    }

    fn complete(&self, shard: u32, result: Result<(), RequestError>) {
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.retry_at.remove(&shard);
                self.health.leases_work();
            }
            Err(error) => {
                state.retry_at.insert(shard, uptime() + RETRY_DELAY);
                let is_first = self.health.leases_failed(error.to_string());
                if is_first {
                    warn!(shard, %error, "Cannot hold Lease; retrying");
                } else {
                    debug!(shard, %error, "Cannot hold Lease; retrying");
                }
            }
        }
    }

    async fn perform(&self, shard: u32, action: LeaseAction, lease: Lease) -> Result<(), RequestError> {
        if action == LeaseAction::Release {
            return self.release(shard).await;
        }
        // The term begins when the request is sent, not when the response arrives.
        let sent_at = uptime();
        let written = match self.write(shard, action, &lease).await {
            Ok(written) => written,
            Err(error) if error.is_conflict() || error.is_already_exists() || error.is_not_found() => {
                debug!(shard, %error, "Another instance changed the Lease");
                return self.read(shard).await;
            }
            Err(error) => return Err(error),
        };
        let mut state = self.state.lock();
        let written_record = record(&written);
        match action {
            LeaseAction::Acquire => {
                self.shards.set_acquired_version(shard, written_record.version);
                state.table.acquired(shard, written_record, sent_at);
            }
            LeaseAction::Renew => state.table.renewed(shard, written_record, sent_at),
            LeaseAction::Request => {
                info!(
                    shard,
                    holder = written.spec.as_ref().and_then(|it| it.holder_identity.as_deref()),
                    "Requested shard"
                );
                state.table.observed(shard, written_record, sent_at);
            }
            LeaseAction::Release => {}
        }
        state.keep_newer(shard, written);
        drop(state);
        self.publish();
        Ok(())
    }

    /// Stops acting on a shard, then clears the holder.
    async fn release(&self, shard: u32) -> Result<(), RequestError> {
        self.state.lock().table.release(shard);
        self.publish();
        self.shards.wait_for_writes(shard).await;
        for _ in 0..RELEASE_ATTEMPTS {
            let lease = {
                let state = self.state.lock();
                let record = state.table.record(shard);
                if record.and_then(|it| it.holder.as_ref()) != Some(&state.table.instance().identity) {
                    return Ok(());
                }
                self.desired(&state, shard, LeaseAction::Release)
            };
            match self.write(shard, LeaseAction::Release, &lease).await {
                Ok(written) => {
                    let mut state = self.state.lock();
                    state.table.observed(shard, record(&written), uptime());
                    state.keep_newer(shard, written);
                    info!(shard, "Released shard");
                    return Ok(());
                }
                // Another instance requested it, or a renewal was in flight when the process was stopped.
                Err(error) if error.is_conflict() || error.is_not_found() => self.read(shard).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases all shards, each when none of its writes is in flight.
    pub(crate) async fn release_all(&self) {
        let held = self.state.lock().table.held();
        let releases = held.into_iter().map(|shard| async move {
            if let Err(error) = self.release(shard).await {
                warn!(shard, %error, "Cannot release Lease; another instance acquires it when it has lapsed");
            }
        });
        futures::future::join_all(releases).await;
    }

    /// The Lease to be written.
    fn desired(&self, state: &State, shard: u32, action: LeaseAction) -> Lease {
        let lease = state.objects.get(&shard).cloned().unwrap_or_else(|| new_lease(shard, &self.namespace));
        change(lease, state.table.instance(), action)
    }

    async fn write(&self, shard: u32, action: LeaseAction, lease: &Lease) -> Result<Lease, RequestError> {
        let name = lease_name(shard);
        let params = PostParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let verb = match action {
            LeaseAction::Acquire => "acquire",
            LeaseAction::Renew => "renew",
            LeaseAction::Request => "request",
            LeaseAction::Release => "release",
        };
        let operation = Operation::new(verb, format!("Lease {}/{name}", self.namespace));
        if lease.metadata.resource_version.is_none() {
            send(self.timeout, operation, self.api.create(&params, lease)).await
        } else {
            send(self.timeout, operation, self.api.replace(&name, &params, lease)).await
        }
    }

    async fn read(&self, shard: u32) -> Result<(), RequestError> {
        let name = lease_name(shard);
        let operation = Operation::new("read", format!("Lease {}/{name}", self.namespace));
        let lease = send(self.timeout, operation, self.api.get_opt(&name)).await?;
        let mut state = self.state.lock();
        if let Some(lease) = lease {
            state.table.observed(shard, record(&lease), uptime());
            state.keep_newer(shard, lease);
        } else {
            state.table.deleted(shard);
            state.objects.remove(&shard);
        }
        drop(state);
        self.publish();
        Ok(())
    }

    /// Applies the terms, and reports shards that this instance starts or stops to hold.
    fn publish(&self) {
        let changed: Vec<u32> = {
            let state = self.state.lock();
            let now = uptime();
            (0..self.shards.count())
                .filter(|shard| self.shards.set_term(*shard, state.table.term(*shard, now)))
                .collect()
        };
        for shard in changed {
            (self.on_change)(shard);
        }
    }
}

impl State {
    fn keep_newer(&mut self, shard: u32, lease: Lease) {
        let is_newer = self.objects.get(&shard).is_none_or(|known| version(known) <= version(&lease));
        if is_newer {
            self.objects.insert(shard, lease);
        }
    }

    /// Logs once that an instance which divides the objects differently is active.
    fn log_other_partition(&mut self, now: Uptime) {
        let own = self.table.instance().partition.to_string();
        let blocked_by = self.table.other_partition(now).map(|(holder, partition)| {
            (holder.to_string(), partition.map_or_else(|| "no instance count".to_owned(), ToString::to_string))
        });
        let text = blocked_by.as_ref().map(|(holder, _)| holder.clone());
        if text != self.blocked_by {
            if let Some((holder, other)) = blocked_by {
                warn!(holder, other, own, "Waiting for an instance with other settings to release its Leases");
            }
            self.blocked_by = text;
        }
    }
}
