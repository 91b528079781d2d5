//! Permits for writes to the management cluster: which write is sent next.
//!
//! A permit is granted by urgency, then priority, then fairness between namespaces. Among urgent writes, fairness comes
//! first: a tenant who sets the kill switch of thousands of objects with the highest priority does not delay another
//! tenant's reclaim. Fair means that the namespace with the fewest permits goes next, then the one that got its last permit
//! longest ago.
//!
//! Of one namespace, the write of the reconcile that started first goes first. With the order of arrival, all reconciles that
//! are in progress would create their Machines at the same time: no object would be done before all of them are, and the API
//! server would be busy with one kind of request at a time.
//!
//! While an urgent object is reconciled, other writes use few permits, so that the API server is not busy with them. Some
//! permits are always left for urgent writes: others may last long, for example in a webhook that does not respond.
//!
//! If the API server is overloaded and requests clients to wait, no permit is granted until then.

mod overload;
#[cfg(test)]
mod tests;
mod urgent_reconciles;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::overload::Overload;
use self::urgent_reconciles::UrgentReconciles;
use crate::runtime::workqueue::Key;

/// The share of all permits that other writes may use while an urgent object is reconciled.
const ORDINARY_SHARE: usize = 8;
/// The share of all permits that only urgent writes use. A single permit is for all.
const RESERVED_SHARE: usize = 8;
/// The share of all permits that the urgent writes of one namespace may use.
const URGENT_NAMESPACE_SHARE: usize = 2;

/// Up to this share of all permits in use is a light load.
const LIGHT_SHARE: usize = 4;

/// How busy the API server is with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Idle,
    /// Few writes are in flight.
    Light,
    /// Many are, and none waits.
    Heavy,
    /// Writes wait, or should not be disturbed.
    Busy,
}

/// How urgent a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Urgent,
    Ordinary,
}

/// Permits for a limited number of writes at a time.
pub(crate) struct WritePermits {
    state: Mutex<State>,
}

/// A permit for one write. Returned when dropped.
pub(crate) struct Permit {
    permits: Arc<WritePermits>,
    level: LevelKey,
    namespace: String,
}

/// An urgent object is being reconciled. Ends when dropped.
pub(crate) struct UrgentReconcile {
    permits: Arc<WritePermits>,
    namespace: String,
}

/// Writes of one level are equally important. Sorts by importance.
type LevelKey = (Reverse<bool>, Reverse<u8>);
/// Sorts the writes of one namespace and level by priority, then by the start of their reconciles.
type Rank = (Reverse<u8>, Timestamp);
/// Sorts writes of the same rank by their arrival.
type WaiterKey = (Rank, u64);

struct State {
    total: usize,
    in_flight: usize,
    /// How many of them are not urgent.
    ordinary_in_flight: usize,
    levels: BTreeMap<LevelKey, Level>,
    /// Writes that wait, by object. A reconcile can send several at the same time.
    waiting: HashMap<Key, BTreeMap<u64, Place>>,
    urgent: UrgentReconciles,
    overload: Overload,
    /// Orders writes by arrival, and namespaces by their last permit.
    sequence: u64,
}

#[derive(Default)]
struct Level {
    namespaces: HashMap<String, Namespace>,
    /// Namespaces with waiting writes: permits in use, sequence number of the last one, name.
    order: BTreeSet<(usize, u64, String)>,
}

#[derive(Default)]
struct Namespace {
    in_flight: usize,
    last: u64,
    waiting: BTreeMap<WaiterKey, (Key, oneshot::Sender<Permit>)>,
}

impl WritePermits {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(WritePermits {
            state: Mutex::new(State {
                total,
                in_flight: 0,
                ordinary_in_flight: 0,
                levels: BTreeMap::new(),
                waiting: HashMap::new(),
                urgent: UrgentReconciles::default(),
                overload: Overload::new(total),
                sequence: 0,
            }),
        })
    }

    /// Waits for a permit for a write of this object. `started` is the start of the reconcile that sends it.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        key: &Key,
        urgency: Urgency,
        priority: u8,
        started: Timestamp,
    ) -> Permit {
        let (sender, receiver) = oneshot::channel();
        let place = (level(urgency, priority), (Reverse(priority), started));
        let sequence = self.state.lock().enter(place, (key.clone(), sender));
        // If this future is dropped, the write leaves the queue; a permit that was sent meanwhile is dropped with the
        // receiver, which returns it.
        let _leave = Leave { permits: self, key, sequence };
        self.grant();
        receiver.await.expect("the sender stays in the queue until it has sent a permit")
    }

    /// Makes the waiting writes of an object urgent.
    pub(crate) fn promote(self: &Arc<Self>, key: &Key) {
        self.state.lock().promote(key);
        self.grant();
    }

    /// Holds other writes back while an urgent object of this namespace is reconciled.
    pub(crate) fn urgent_reconcile(self: &Arc<Self>, namespace: &str) -> UrgentReconcile {
        self.state.lock().urgent.start(namespace, Instant::now());
        UrgentReconcile { permits: Arc::clone(self), namespace: namespace.to_owned() }
    }

    /// Grants no permit until the API server accepts requests again. Returns whether that extends the pause.
    pub(crate) fn pause(self: &Arc<Self>, retry_after: Duration) -> bool {
        let mut state = self.state.lock();
        let in_flight = state.ordinary_in_flight;
        let until = state.overload.rejected(retry_after, in_flight, Instant::now());
        drop(state);
        let Some(until) = until else { return false };
        let permits = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            permits.grant();
        });
        true
    }

    /// When the API server accepts requests again; `None` if it does now.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.state.lock().overload.paused_until(Instant::now())
    }

    /// How busy the API server is with writes, for a write that is less important than all others.
    pub(crate) fn load(&self) -> Load {
        let state = self.state.lock();
        let has_room = state.ordinary_in_flight < state.max_ordinary();
        let now = Instant::now();
        let is_paused = state.overload.paused_until(now).is_some();
        if is_paused || !has_room || !state.waiting.is_empty() || state.urgent.holds_others_back(now) {
            Load::Busy
        } else if state.in_flight == 0 {
            Load::Idle
        } else if state.in_flight <= state.total / LIGHT_SHARE {
            Load::Light
        } else {
            Load::Heavy
        }
    }

    /// Grants free permits to the first writes in the queue.
    fn grant(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let mut granted = Vec::new();
        while let Some((level, namespace, sender)) = state.take_next() {
            granted.push((Permit { permits: Arc::clone(self), level, namespace }, sender));
        }
        drop(state);
        for (permit, sender) in granted {
            // If the receiver was dropped meanwhile, so is the permit, which returns it.
            drop(sender.send(permit));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.state.lock().release(self.level, &self.namespace);
        self.permits.grant();
    }
}

impl Drop for UrgentReconcile {
    fn drop(&mut self) {
        self.permits.state.lock().urgent.end(&self.namespace, Instant::now());
        self.permits.grant();
    }
}

/// Removes a write from the queue, if it is still in it.
struct Leave<'a> {
    permits: &'a WritePermits,
    key: &'a Key,
    sequence: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        if let Some(place) = state.forget(self.key, self.sequence) {
            // Dropped after the lock.
            let _waiter = state.remove(self.key, self.sequence, place);
            drop(state);
        }
    }
}

type Waiter = (Key, oneshot::Sender<Permit>);
/// Where a write waits.
type Place = (LevelKey, Rank);

impl State {
    /// Returns the sequence number of the write.
    fn enter(&mut self, place: Place, waiter: Waiter) -> u64 {
        self.sequence += 1;
        let sequence = self.sequence;
        self.insert(sequence, place, waiter);
        sequence
    }

    fn insert(&mut self, sequence: u64, place: Place, waiter: Waiter) {
        let (level, rank) = place;
        let key = waiter.0.clone();
        self.levels.entry(level).or_default().update(&key.namespace, |namespace| {
            namespace.waiting.insert((rank, sequence), waiter);
        });
        self.waiting.entry(key).or_default().insert(sequence, place);
    }

    fn remove(&mut self, key: &Key, sequence: u64, (level, rank): Place) -> Option<Waiter> {
        let waiter = self
            .levels
            .get_mut(&level)?
            .update(&key.namespace, |namespace| namespace.waiting.remove(&(rank, sequence)));
        self.drop_if_empty(level);
        waiter
    }

    /// Forgets where a write waits; `None` if it waits no more.
    fn forget(&mut self, key: &Key, sequence: u64) -> Option<Place> {
        let writes = self.waiting.get_mut(key)?;
        let place = writes.remove(&sequence);
        if writes.is_empty() {
            self.waiting.remove(key);
        }
        place
    }

    fn promote(&mut self, key: &Key) {
        for (sequence, place @ (_, rank)) in self.waiting.remove(key).unwrap_or_default() {
            if let Some(waiter) = self.remove(key, sequence, place) {
                self.insert(sequence, (level(Urgency::Urgent, rank.0.0), rank), waiter);
            }
        }
    }

    /// Takes the write that gets the next free permit.
    fn take_next(&mut self) -> Option<(LevelKey, String, oneshot::Sender<Permit>)> {
        if self.in_flight >= self.total || self.overload.paused_until(Instant::now()).is_some() {
            return None;
        }
        let ordinary_has_room = self.ordinary_in_flight < self.max_ordinary();
        let max_of_namespace = (self.total / URGENT_NAMESPACE_SHARE).max(1);
        let (level, (_, _, namespace)) = self.levels.iter().find_map(|(level, queue)| {
            let first = queue.order.first()?;
            let has_room = if is_urgent(*level) { first.0 < max_of_namespace } else { ordinary_has_room };
            has_room.then(|| (*level, first.clone()))
        })?;
        self.sequence += 1;
        let sequence = self.sequence;
        let ((_, waiter_sequence), (key, sender)) = self.levels.get_mut(&level)?.update(&namespace, |namespace| {
            let waiter = namespace.waiting.pop_first()?;
            namespace.in_flight += 1;
            namespace.last = sequence;
            Some(waiter)
        })?;
        self.forget(&key, waiter_sequence);
        self.in_flight += 1;
        self.ordinary_in_flight += usize::from(!is_urgent(level));
        Some((level, namespace, sender))
    }

    fn release(&mut self, level: LevelKey, namespace: &str) {
        self.in_flight -= 1;
        self.ordinary_in_flight -= usize::from(!is_urgent(level));
        self.overload.ended(Instant::now());
        if let Some(queue) = self.levels.get_mut(&level) {
            queue.update(namespace, |namespace| namespace.in_flight -= 1);
        }
        self.drop_if_empty(level);
    }

    fn max_ordinary(&self) -> usize {
        let max = if self.urgent.holds_others_back(Instant::now()) {
            (self.total / ORDINARY_SHARE).max(1)
        } else {
            (self.total - (self.total / RESERVED_SHARE).max(1)).max(1)
        };
        max.min(self.overload.width())
    }

    fn drop_if_empty(&mut self, level: LevelKey) {
        if self.levels.get(&level).is_some_and(|queue| queue.namespaces.is_empty()) {
            self.levels.remove(&level);
        }
    }
}

impl Level {
    /// Changes a namespace and keeps its place in the order.
    fn update<T>(&mut self, name: &str, change: impl FnOnce(&mut Namespace) -> T) -> T {
        let namespace = self.namespaces.entry(name.to_owned()).or_default();
        self.order.remove(&(namespace.in_flight, namespace.last, name.to_owned()));
        let result = change(namespace);
        if !namespace.waiting.is_empty() {
            self.order.insert((namespace.in_flight, namespace.last, name.to_owned()));
        } else if namespace.in_flight == 0 {
            self.namespaces.remove(name);
        }
        result
    }
}

/// All urgent writes are of one level, so that fairness between namespaces comes before their priority.
fn level(urgency: Urgency, priority: u8) -> LevelKey {
    match urgency {
        Urgency::Urgent => (Reverse(true), Reverse(0)),
        Urgency::Ordinary => (Reverse(false), Reverse(priority)),
    }
}

fn is_urgent((Reverse(urgent), _): LevelKey) -> bool {
    urgent
}
