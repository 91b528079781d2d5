//! The work queue: which object is reconciled next.
//!
//! An object is due immediately when it changed, or at a given instant. Due objects wait in the lane of their cluster,
//! highest priority first. A lane hands out a bounded number of objects at a time, so that a slow cluster delays only its
//! own objects, and no object is handed out twice at the same time. Urgent objects have lanes of their own that go first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where an object waits in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Placement {
    /// Objects of one lane share its width.
    pub(crate) lane: String,
    /// Urgent objects go before all others, and share a width only with the urgent objects of their lane.
    pub(crate) urgent: bool,
    /// Higher goes first.
    pub(crate) priority: u8,
}

impl Placement {
    fn lane(&self) -> Lane {
        (self.lane.clone(), self.urgent)
    }

    fn entry(&self, key: &Key, sequence: u64) -> Entry {
        (Reverse(self.urgent), Reverse(self.priority), sequence, key.clone())
    }
}

/// Name of the lane, and whether it is the one for urgent objects.
type Lane = (String, bool);
/// Sorts by urgency, then priority, then order of arrival.
type Entry = (Reverse<bool>, Reverse<u8>, u64, Key);

pub(crate) struct WorkQueue {
    state: Mutex<State>,
    changed: Notify,
    lane_width: usize,
}

#[derive(Default)]
struct State {
    /// Objects that are due at an instant, sorted by it.
    timers: BTreeSet<(Instant, Key)>,
    due_at: HashMap<Key, Instant>,
    /// Due objects, by lane.
    lanes: HashMap<Lane, BTreeSet<Entry>>,
    /// Placement and sequence number of each due object.
    waiting: HashMap<Key, (Placement, u64)>,
    /// Objects that were handed out and are not done, with their lanes.
    running: HashMap<Key, Lane>,
    running_in_lane: HashMap<Lane, usize>,
    /// Running objects that became due again.
    dirty: HashSet<Key>,
    /// Orders objects of equal priority by arrival.
    sequence: u64,
}

impl WorkQueue {
    /// `lane_width`: how many objects of one lane are handed out at a time.
    pub(crate) fn new(lane_width: usize) -> Self {
        WorkQueue { state: Mutex::default(), changed: Notify::new(), lane_width }
    }

    /// Makes an object due immediately.
    pub(crate) fn add(&self, key: Key) {
        self.add_after(key, Duration::ZERO);
    }

    /// Makes an object due after a delay, unless it is due earlier anyway.
    pub(crate) fn add_after(&self, key: Key, delay: Duration) {
        self.state.lock().set_timer(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Waits for the next object. The caller must call [`done`](Self::done) when it has been reconciled.
    pub(crate) async fn next(&self, placement: impl Fn(&Key) -> Placement) -> Key {
        loop {
            let due = self.state.lock().take_due(Instant::now());
            // `placement` reads caches, and a caller of `add` may hold their locks: never call it under our own lock.
            let placed: Vec<(Key, Placement)> = due.into_iter().map(|key| (key.clone(), placement(&key))).collect();
            let next_timer = {
                let mut state = self.state.lock();
                for (key, placement) in placed {
                    state.enter(key, placement);
                }
                if let Some(key) = state.take(self.lane_width) {
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            let timer = async {
                match next_timer {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Ends the work on an object. It is due again after the delay, or immediately if it was added meanwhile.
    pub(crate) fn done(&self, key: &Key, requeue_after: Option<Duration>) {
        let mut state = self.state.lock();
        if let Some(lane) = state.running.remove(key)
            && let Some(running) = state.running_in_lane.get_mut(&lane)
        {
            *running -= 1;
            if *running == 0 {
                state.running_in_lane.remove(&lane);
            }
        }
        let immediately = state.dirty.remove(key).then_some(Duration::ZERO);
        if let Some(delay) = immediately.or(requeue_after) {
            state.set_timer(key.clone(), Instant::now() + delay);
        }
        drop(state);
        self.changed.notify_one();
    }
}

impl State {
    fn set_timer(&mut self, key: Key, at: Instant) {
        match self.due_at.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                let later = (*later, key.clone());
                self.timers.remove(&later);
            }
            None => {}
        }
        self.due_at.insert(key.clone(), at);
        self.timers.insert((at, key));
    }

    /// Takes the objects whose timer has expired. A running one is marked dirty instead: `done` makes it due again.
    fn take_due(&mut self, now: Instant) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.due_at.remove(&key);
            if self.running.contains_key(&key) {
                self.dirty.insert(key);
            } else {
                due.push(key);
            }
        }
        due
    }

    /// Puts a due object into its lane. One that waits already keeps its sequence number and moves if its placement changed.
    fn enter(&mut self, key: Key, placement: Placement) {
        let sequence = match self.waiting.get(&key) {
            Some((before, _)) if *before == placement => return,
            Some((before, sequence)) => {
                let (before, sequence) = (before.clone(), *sequence);
                self.leave(&before.lane(), &before.entry(&key, sequence));
                sequence
            }
            None => {
                self.sequence += 1;
                self.sequence
            }
        };
        self.lanes.entry(placement.lane()).or_default().insert(placement.entry(&key, sequence));
        self.waiting.insert(key, (placement, sequence));
    }

    fn leave(&mut self, lane: &Lane, entry: &Entry) {
        if let Some(entries) = self.lanes.get_mut(lane) {
            entries.remove(entry);
            if entries.is_empty() {
                self.lanes.remove(lane);
            }
        }
    }

    /// Takes the first object of all lanes that are not full.
    fn take(&mut self, lane_width: usize) -> Option<Key> {
        let has_room = |lane: &Lane| self.running_in_lane.get(lane).is_none_or(|running| *running < lane_width);
        let (first, lane) = self
            .lanes
            .iter()
            .filter(|(lane, _)| has_room(lane))
            .filter_map(|(lane, entries)| entries.first().map(|first| (first, lane)))
            .min()
            .map(|(first, lane)| (first.clone(), lane.clone()))?;
        self.leave(&lane, &first);
        let key = first.3;
        self.waiting.remove(&key);
        *self.running_in_lane.entry(lane.clone()).or_default() += 1;
        self.running.insert(key.clone(), lane);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    /// `slow-3` waits in lane `slow` with priority 3.
    fn placement(key: &Key) -> Placement {
        let (lane, priority) = key.name.split_once('-').unwrap();
        Placement { lane: lane.to_owned(), urgent: false, priority: priority.parse().unwrap() }
    }

    /// The next object, if one is due.
    async fn poll(queue: &WorkQueue) -> Option<String> {
        tokio::time::timeout(Duration::from_millis(1), queue.next(placement)).await.ok().map(|key| key.name)
    }

    #[tokio::test(start_paused = true)]
    async fn higher_priority_goes_first() {
        let queue = WorkQueue::new(9);
        for name in ["a-1", "a-3", "b-2"] {
            queue.add(key(name));
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-3"));
        assert_eq!(poll(&queue).await.as_deref(), Some("b-2"));
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        assert_eq!(poll(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn full_lane_delays_no_other_lane() {
        let queue = WorkQueue::new(1);
        for name in ["slow-9", "slow-8", "fast-1"] {
            queue.add(key(name));
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("slow-9"));
        assert_eq!(poll(&queue).await.as_deref(), Some("fast-1"));
        assert_eq!(poll(&queue).await, None);
        queue.done(&key("slow-9"), None);
        assert_eq!(poll(&queue).await.as_deref(), Some("slow-8"));
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_item_bypasses_full_lane() {
        let queue = WorkQueue::new(1);
        for name in ["a-9", "a-8", "a-1", "b-7"] {
            queue.add(key(name));
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-9"));
        // a-1 becomes urgent while it waits.
        queue.add(key("a-1"));
        let urgent = |key: &Key| Placement { urgent: key.name == "a-1", ..placement(key) };
        assert_eq!(queue.next(urgent).await, key("a-1"));
        assert_eq!(queue.next(urgent).await, key("b-7"));
        for name in ["a-9", "a-1", "b-7"] {
            queue.done(&key(name), None);
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-8"));
        assert_eq!(poll(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn item_added_while_running_is_handed_out_once_more() {
        let queue = WorkQueue::new(9);
        queue.add(key("a-1"));
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        queue.add(key("a-1"));
        assert_eq!(poll(&queue).await, None);
        queue.done(&key("a-1"), None);
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        queue.done(&key("a-1"), None);
        assert_eq!(poll(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_delay_wins() {
        let queue = WorkQueue::new(9);
        queue.add_after(key("a-1"), Duration::from_mins(1));
        queue.add_after(key("a-1"), Duration::from_secs(10));
        queue.add_after(key("a-1"), Duration::from_secs(30));
        let before = Instant::now();
        assert_eq!(queue.next(placement).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 10);
        queue.done(&key("a-1"), Some(Duration::from_secs(5)));
        assert_eq!(queue.next(placement).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 15);
    }
}
