//! Which Leases an instance acquires, renews, requests and releases. Pure: what the watch and the API server report, and the
//! time, are arguments.
//!
//! An instance that acts on a shard holds its Lease, and has seen its own acquisition in the watch of all Leases. The watch is
//! ordered, so it has seen every acquisition before its own, too: of two instances that divide the objects differently, the
//! later one sees the earlier one and releases its Lease without having acted.
//!
//! Times are of the clock of this instance. Another instance's Lease has lapsed when it has not changed for its duration
//! since this instance saw its last change. The time in a Lease is never compared with a clock.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time since an instant before the start of the process, on a clock that does not stop while the host sleeps.
pub type Uptime = Duration;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// The shard that it prefers.
    pub id: u32,
    pub identity: Identity,
    pub partition: Partition,
    /// `spec.leaseDurationSeconds` of the Leases that it holds.
    pub lease_duration: Duration,
}

impl Instance {
    /// When a Lease is renewed after its last renewal was sent.
    pub fn renew_after(&self) -> Duration {
        self.lease_duration / 3
    }

    /// How long writes are sent after the last renewal of the Lease was sent. The rest of its duration is for those in flight.
    pub fn write_for(&self) -> Duration {
        self.lease_duration * 2 / 3
    }
}

/// Holder of a Lease: `<instance>_<host>_<random>`. A process that restarts has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub String);

impl Identity {
    pub fn new(instance: u32, host: &str, random: u32) -> Self {
        Identity(format!("{instance}_{host}_{random:08x}"))
    }

    /// The id of the instance.
    fn instance(&self) -> Option<u32> {
        self.0.split_once('_').and_then(|(instance, _)| instance.parse().ok())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the objects are divided. Instances with different partitions must not act at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Number of shards.
    pub count: u32,
    /// The namespace that is watched; all if empty.
    pub namespace: String,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance count {}", self.count)?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " and namespace {}", self.namespace) }
    }
}

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// `None` if it has been released.
    pub holder: Option<Identity>,
    /// Increases with each acquisition.
    pub transitions: i32,
    /// Differs after each renewal.
    pub renewal: String,
    /// `None` if another program wrote the Lease.
    pub partition: Option<Partition>,
    pub duration: Duration,
    /// The instance that prefers this shard and waits for it.
    pub requested_by: Option<Identity>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ObservedLease {
    record: LeaseRecord,
    /// When this instance saw its holder or renewal change.
    changed_at: Uptime,
    /// The Lease was deleted. Until it would have lapsed, its holder may not know that.
    is_deleted: bool,
}

impl ObservedLease {
    fn lapses_at(&self) -> Uptime {
        self.changed_at + self.record.duration
    }

    /// Whether an instance other than this one may act.
    fn is_live(&self, identity: &Identity, now: Uptime) -> bool {
        self.record.holder.as_ref().is_some_and(|holder| holder != identity) && now < self.lapses_at()
    }
}

/// A shard whose Lease this instance holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    /// When the last renewal that succeeded was sent.
    renewed_at: Uptime,
    transitions: i32,
    acquisition: Acquisition,
}

/// What the watch shows of an acquisition. It is ordered: once it delivers the acquisition, it has delivered all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Acquisition {
    /// Not delivered yet.
    Pending,
    /// Delivered; no instance with another partition was live then. Such instances will see this one.
    Confirmed,
    /// Delivered; an instance with another partition was live, and does not know of this one.
    Refused,
}

/// Until when an instance may act on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Until when writes may be sent.
    pub write_until: Uptime,
    /// Until when they must have arrived: afterwards another instance may hold the shard.
    pub expires_at: Uptime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseAction {
    /// Create the Lease, or replace its holder.
    Acquire,
    Renew,
    /// The holder prefers another shard: request that it releases this one.
    Request,
    /// Stop acting, then clear the holder.
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseDecision {
    pub actions: BTreeMap<u32, LeaseAction>,
    /// When to decide again if no Lease changes before.
    pub wake_at: Option<Uptime>,
}

/// The Leases of all shards, as one instance knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTable {
    instance: Instance,
    /// Also of shards that the partition of this instance does not have.
    leases: BTreeMap<u32, ObservedLease>,
    /// Holder and partition as delivered by the watch, which can be older.
    watched: BTreeMap<u32, (Option<Identity>, Option<Partition>)>,
    held: BTreeMap<u32, Held>,
}

impl LeaseTable {
    pub fn new(instance: Instance) -> Self {
        LeaseTable { instance, leases: BTreeMap::new(), watched: BTreeMap::new(), held: BTreeMap::new() }
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The watch delivers a Lease.
    pub fn watched(&mut self, shard: u32, record: LeaseRecord, now: Uptime) {
        let (holder, transitions) = (record.holder.clone(), record.transitions);
        self.watched.insert(shard, (holder.clone(), record.partition.clone()));
        self.observed(shard, record, now);
        let acquisition = if self.is_refused(now) { Acquisition::Refused } else { Acquisition::Confirmed };
        if let Some(held) = self.held.get_mut(&shard)
            && holder.as_ref() == Some(&self.instance.identity)
            && held.transitions == transitions
            && held.acquisition == Acquisition::Pending
        {
            held.acquisition = acquisition;
        }
    }

    /// Whether the watch shows a live Lease with another partition.
    fn is_refused(&self, now: Uptime) -> bool {
        let Instance { identity, partition, .. } = &self.instance;
        self.watched.iter().any(|(shard, (holder, other))| {
            let is_other = holder.as_ref().is_some_and(|it| it != identity) && other.as_ref() != Some(partition);
            is_other && self.leases.get(shard).is_some_and(|lease| now < lease.lapses_at())
        })
    }

    /// The watch reports that a Lease was deleted.
    pub fn deleted(&mut self, shard: u32) {
        self.held.remove(&shard);
        if let Some(lease) = self.leases.get_mut(&shard) {
            lease.is_deleted = true;
        }
    }

    /// All Leases were listed, the first time or again. A list is the truth even if versions went back.
    pub fn resynced(&mut self, records: BTreeMap<u32, LeaseRecord>, now: Uptime) {
        let missing: Vec<u32> = self.leases.keys().filter(|shard| !records.contains_key(shard)).copied().collect();
        for shard in missing {
            self.deleted(shard);
        }
        for (shard, record) in records {
            self.leases.entry(shard).and_modify(|lease| lease.record.version = 0);
            self.watched(shard, record, now);
        }
    }

    /// A Lease was read or written by this instance. Older versions than the known one are ignored.
    pub fn observed(&mut self, shard: u32, record: LeaseRecord, now: Uptime) {
        let known = self.leases.get(&shard);
        if known.is_some_and(|known| record.version < known.record.version) {
            return;
        }
        let is_unchanged = known.is_some_and(|known| {
            known.record.holder == record.holder && known.record.renewal == record.renewal && !known.is_deleted
        });
        let changed_at = known.filter(|_| is_unchanged).map_or(now, |known| known.changed_at);
        let is_held = record.holder.as_ref() == Some(&self.instance.identity);
        if self.held.get(&shard).is_some_and(|held| !is_held || held.transitions != record.transitions) {
            self.held.remove(&shard);
        }
        self.leases.insert(shard, ObservedLease { record, changed_at, is_deleted: false });
    }

    /// This instance acquired a Lease with a request that it sent at `sent_at`. It acts once the watch confirms that.
    pub fn acquired(&mut self, shard: u32, record: LeaseRecord, sent_at: Uptime) {
        let transitions = record.transitions;
        self.observed(shard, record, sent_at);
        self.held.insert(shard, Held { renewed_at: sent_at, transitions, acquisition: Acquisition::Pending });
    }

    /// This instance renewed a Lease with a request that it sent at `sent_at`.
    pub fn renewed(&mut self, shard: u32, record: LeaseRecord, sent_at: Uptime) {
        self.observed(shard, record, sent_at);
        if let Some(held) = self.held.get_mut(&shard) {
            held.renewed_at = sent_at;
        }
    }

    /// This instance no longer acts on a shard, and is about to clear the holder.
    pub fn release(&mut self, shard: u32) {
        self.held.remove(&shard);
    }

    /// What the Lease of a shard says, as far as this instance knows.
    pub fn record(&self, shard: u32) -> Option<&LeaseRecord> {
        self.leases.get(&shard).filter(|lease| !lease.is_deleted).map(|lease| &lease.record)
    }

    /// The shards whose Leases this instance holds, whether it acts on them or not.
    pub fn held(&self) -> Vec<u32> {
        self.held.keys().copied().collect()
    }

    /// Until when this instance may act on a shard.
    pub fn term(&self, shard: u32, now: Uptime) -> Option<Term> {
        let held = self.held.get(&shard).filter(|held| held.acquisition == Acquisition::Confirmed)?;
        let term = Term {
            write_until: held.renewed_at + self.instance.write_for(),
            expires_at: held.renewed_at + self.instance.lease_duration,
        };
        (now < term.write_until).then_some(term)
    }

    /// A live Lease of an instance that divides the objects differently, because of which no shard is acquired.
    pub fn other_partition(&self, now: Uptime) -> Option<(&Identity, Option<&Partition>)> {
        self.other_partition_lease(now).and_then(|it| Some((it.record.holder.as_ref()?, it.record.partition.as_ref())))
    }

    fn other_partition_lease(&self, now: Uptime) -> Option<&ObservedLease> {
        let Instance { identity, partition, .. } = &self.instance;
        let is_other =
            |lease: &&ObservedLease| lease.is_live(identity, now) && lease.record.partition.as_ref() != Some(partition);
        self.leases.values().find(is_other)
    }

    /// Decides what to do with each Lease.
    pub fn decide(&self, now: Uptime) -> LeaseDecision {
        let mut decision = LeaseDecision { actions: BTreeMap::new(), wake_at: None };
        for shard in 0..self.instance.partition.count {
            // After the time for writes it has to be acquired again: an instance with another partition may act.
            let held = self.held.get(&shard).filter(|held| now < held.renewed_at + self.instance.write_for());
            let next = match held {
                Some(held) => self.keep(shard, *held, now),
                None => self.obtain(shard, now),
            };
            match next {
                Next::Act(action) => {
                    decision.actions.insert(shard, action);
                }
                Next::Wait(until) => decision.wake_at = decision.wake_at.into_iter().chain([until]).min(),
            }
        }
        decision
    }

    fn keep(&self, shard: u32, held: Held, now: Uptime) -> Next {
        let Instance { id, identity, .. } = &self.instance;
        if held.acquisition == Acquisition::Refused {
            return Next::Act(LeaseAction::Release);
        }
        let requested_by = self.leases.get(&shard).and_then(|lease| lease.record.requested_by.as_ref());
        let is_requested = requested_by.is_some_and(|it| it != identity && it.instance() == Some(shard));
        if is_requested && *id != shard {
            return Next::Act(LeaseAction::Release);
        }
        let renew_at = held.renewed_at + self.instance.renew_after();
        if now >= renew_at { Next::Act(LeaseAction::Renew) } else { Next::Wait(renew_at) }
    }

    fn obtain(&self, shard: u32, now: Uptime) -> Next {
        let Instance { id, identity, partition, .. } = &self.instance;
        let is_preferred = *id == shard;
        let lease = self.leases.get(&shard);
        if let Some(lease) = lease.filter(|lease| lease.is_live(identity, now)) {
            let record = &lease.record;
            let is_holder_preferred = record.holder.as_ref().and_then(Identity::instance) == Some(shard);
            let is_same_partition = record.partition.as_ref() == Some(partition);
            let is_requested = record.requested_by.as_ref() == Some(identity) || lease.is_deleted;
            return if is_preferred && !is_holder_preferred && is_same_partition && !is_requested {
                Next::Act(LeaseAction::Request)
            } else {
                Next::Wait(lease.lapses_at())
            };
        }
        if let Some(other) = self.other_partition_lease(now) {
            return Next::Wait(other.lapses_at());
        }
        // It was released for the instance that prefers it, which gets some time to acquire it.
        let reserved_until = lease
            .filter(|lease| lease.record.holder.is_none() && lease.record.requested_by.is_some() && !is_preferred)
            .map(|lease| lease.changed_at + self.instance.renew_after());
        match reserved_until {
            Some(until) if now < until => Next::Wait(until),
            Some(_) | None => Next::Act(LeaseAction::Acquire),
        }
    }
}

enum Next {
    Act(LeaseAction),
    Wait(Uptime),
}
