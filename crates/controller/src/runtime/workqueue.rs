//! The work queue: which object is reconciled next.
//!
//! An object is due immediately when it changed, or at a given instant. Due objects wait in the lane of their cluster,
//! highest priority first, and namespaces take turns within a priority. A lane hands out a bounded number of objects at a
//! time, so that a slow cluster delays only its own objects, and so does a namespace, so that one with many slow clusters
//! delays no other. The number of all objects that are handed out and do not wait for a workload cluster is bounded, too:
//! more would only wait for a permit to write. No object is handed out twice at the same time. Urgent objects have lanes of
//! their own that go first, and are not counted with the others.

mod lanes;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::consume_budget;
use tokio::time::Instant;

use self::lanes::Lanes;

/// The delay of an object that requeues itself without one, so that it cannot keep the controller busy.
const MIN_REQUEUE: Duration = Duration::from_millis(100);

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
    fn lane(&self, key: &Key) -> Lane {
        Lane { group: (key.namespace.clone(), self.urgent), name: self.lane.clone() }
    }

    fn entry(&self, key: &Key, sequence: u64) -> Entry {
        (Reverse(self.urgent), Reverse(self.priority), sequence, key.clone())
    }
}

/// The lanes of a namespace: those for urgent objects, or the others.
type Group = (String, bool);
/// Sorts by urgency, then priority, then order of arrival.
type Entry = (Reverse<bool>, Reverse<u8>, u64, Key);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Lane {
    group: Group,
    name: String,
}

/// How many objects are handed out at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    /// Of those that are not urgent and do not wait for a workload cluster.
    pub(crate) total: usize,
    /// Of one lane.
    pub(crate) lane: usize,
    /// Of all lanes of one namespace.
    pub(crate) namespace: usize,
}

pub(crate) struct WorkQueue {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// Objects that are due at an instant, sorted by it.
    timers: BTreeSet<(Instant, Key)>,
    due_at: HashMap<Key, Instant>,
    /// Due objects.
    lanes: Lanes,
    /// Placement and sequence number of each due object.
    waiting: HashMap<Key, (Placement, u64)>,
    /// Objects that were handed out and are not done, with their lanes.
    running: HashMap<Key, Lane>,
    /// How many requests to a workload cluster each running object waits for.
    waiting_elsewhere: HashMap<Key, usize>,
    /// Running objects that became due again.
    dirty: HashSet<Key>,
    /// Orders objects of equal priority by arrival.
    sequence: u64,
}

impl WorkQueue {
    pub(crate) fn new(widths: Widths) -> Self {
        let state = State {
            timers: BTreeSet::new(),
            due_at: HashMap::new(),
            lanes: Lanes::new(widths),
            waiting: HashMap::new(),
            running: HashMap::new(),
            waiting_elsewhere: HashMap::new(),
            dirty: HashSet::new(),
            sequence: 0,
        };
        WorkQueue { state: Mutex::new(state), changed: Notify::new() }
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
    ///
    /// `on_due_again` is called for an object that became due while it is being reconciled.
    pub(crate) async fn next(&self, placement: impl Fn(&Key) -> Placement, on_due_again: impl Fn(&Key)) -> Key {
        // If an object is always due, nothing else here ever waits, and the caller waits for other things too.
        consume_budget().await;
        loop {
            let Due { waiting, running } = self.state.lock().take_due(Instant::now());
            // Both functions read caches, and a caller of `add` may hold their locks: never call them under our own lock.
            let placed: Vec<(Key, Placement)> = waiting.into_iter().map(|key| (key.clone(), placement(&key))).collect();
            running.iter().for_each(&on_due_again);
            let next_timer = {
                let mut state = self.state.lock();
                for (key, placement) in placed {
                    state.enter(key, placement);
                }
                if let Some(key) = state.take() {
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

    /// Objects that are due, running, or will be due.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.due_at.len()
            + state.waiting.len()
            + state.running.len()
            + state.waiting_elsewhere.len()
            + state.dirty.len()
    }

    /// A running object waits for a workload cluster, until the guard is dropped.
    pub(crate) fn wait_elsewhere<'a>(&'a self, key: &'a Key) -> WaitElsewhere<'a> {
        self.state.lock().wait_elsewhere(key);
        self.changed.notify_one();
        WaitElsewhere { queue: self, key }
    }

    /// Ends the work on an object. It is due again after the delay, or immediately if it was added meanwhile.
    pub(crate) fn done(&self, key: &Key, requeue_after: Option<Duration>) {
        let mut state = self.state.lock();
        if let Some(lane) = state.running.remove(key) {
            state.lanes.done(&lane);
        }
        let immediately = state.dirty.remove(key).then_some(Duration::ZERO);
        let requeue_after = requeue_after.map(|delay| if delay.is_zero() { MIN_REQUEUE } else { delay });
        if let Some(delay) = immediately.or(requeue_after) {
            state.set_timer(key.clone(), Instant::now() + delay);
        }
        drop(state);
        self.changed.notify_one();
    }
}

/// A running object waits for a workload cluster. Ends when dropped.
pub(crate) struct WaitElsewhere<'a> {
    queue: &'a WorkQueue,
    key: &'a Key,
}

impl Drop for WaitElsewhere<'_> {
    fn drop(&mut self) {
        self.queue.state.lock().resume(self.key);
    }
}

impl State {
    /// An object can wait for several requests at the same time; the first and the last count.
    fn wait_elsewhere(&mut self, key: &Key) {
        let waits = self.waiting_elsewhere.entry(key.clone()).or_default();
        *waits += 1;
        if let (1, Some(lane)) = (*waits, self.running.get(key)) {
            self.lanes.deactivate(lane);
        }
    }

    fn resume(&mut self, key: &Key) {
        let Some(waits) = self.waiting_elsewhere.get_mut(key) else { return };
        *waits -= 1;
        if *waits == 0 {
            self.waiting_elsewhere.remove(key);
            if let Some(lane) = self.running.get(key) {
                self.lanes.activate(lane);
            }
        }
    }

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
    fn take_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.due_at.remove(&key);
            if self.running.contains_key(&key) {
                self.dirty.insert(key.clone());
                due.running.push(key);
            } else {
                due.waiting.push(key);
            }
        }
        due
    }

    /// Puts a due object into its lane. One that waits already keeps its sequence number and moves if its placement changed.
    fn enter(&mut self, key: Key, placement: Placement) {
        let sequence = match self.waiting.get(&key) {
            Some((before, _)) if *before == placement => return,
            Some((before, sequence)) => {
                let (lane, entry, sequence) = (before.lane(&key), before.entry(&key, *sequence), *sequence);
                self.lanes.remove(&lane, &entry);
                sequence
            }
            None => {
                self.sequence += 1;
                self.sequence
            }
        };
        self.lanes.insert(&placement.lane(&key), placement.entry(&key, sequence));
        self.waiting.insert(key, (placement, sequence));
    }

    /// Takes the first object of all lanes that are not full.
    fn take(&mut self) -> Option<Key> {
        let (lane, (_, _, _, key)) = self.lanes.take()?;
        self.waiting.remove(&key);
        self.running.insert(key.clone(), lane);
        Some(key)
    }
}

/// Objects whose timer has expired.
#[derive(Default)]
struct Due {
    waiting: Vec<Key>,
    running: Vec<Key>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    const WIDE: Widths = Widths { total: 9, lane: 9, namespace: 9 };
    const NARROW: Widths = Widths { lane: 1, ..WIDE };

    /// `slow-3` waits in lane `slow` with priority 3.
    fn placement(key: &Key) -> Placement {
        let (lane, priority) = key.name.split_once('-').unwrap();
        Placement { lane: lane.to_owned(), urgent: false, priority: priority.parse().unwrap() }
    }

    async fn next(queue: &WorkQueue, placement: impl Fn(&Key) -> Placement) -> Key {
        queue.next(placement, |_| {}).await
    }

    /// The next object, if one is due.
    async fn poll(queue: &WorkQueue) -> Option<String> {
        tokio::time::timeout(Duration::from_millis(1), next(queue, placement)).await.ok().map(|key| key.name)
    }

    #[tokio::test(start_paused = true)]
    async fn higher_priority_goes_first() {
        let queue = WorkQueue::new(WIDE);
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
        let queue = WorkQueue::new(NARROW);
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
        let queue = WorkQueue::new(NARROW);
        for name in ["a-9", "a-8", "a-1", "b-7"] {
            queue.add(key(name));
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-9"));
        // a-1 becomes urgent while it waits.
        queue.add(key("a-1"));
        let urgent = |key: &Key| Placement { urgent: key.name == "a-1", ..placement(key) };
        assert_eq!(next(&queue, urgent).await, key("a-1"));
        assert_eq!(next(&queue, urgent).await, key("b-7"));
        for name in ["a-9", "a-1", "b-7"] {
            queue.done(&key(name), None);
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-8"));
        assert_eq!(poll(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn full_namespace_delays_no_other_namespace() {
        let queue = WorkQueue::new(Widths { lane: 2, namespace: 3, ..WIDE });
        for name in ["a-9", "a-8", "b-7", "b-6", "c-5"] {
            queue.add(key(name));
        }
        let other = Key { namespace: "other".to_owned(), name: "a-1".to_owned() };
        queue.add(other.clone());
        let order = ["a-9", "a-8", "b-7"].map(key);
        for expected in &order {
            assert_eq!(next(&queue, placement).await, *expected);
        }
        assert_eq!(next(&queue, placement).await, other);
        // An urgent object of the full namespace.
        queue.add(key("c-5"));
        let urgent = |key: &Key| Placement { urgent: key.name == "c-5", ..placement(key) };
        assert_eq!(next(&queue, urgent).await, key("c-5"));
        assert_eq!(poll(&queue).await, None);
        queue.done(&key("a-9"), None);
        assert_eq!(poll(&queue).await.as_deref(), Some("b-6"));
        for name in ["a-8", "b-7", "b-6", "c-5"] {
            queue.done(&key(name), None);
        }
        queue.done(&other, None);
        assert!(queue.state.lock().lanes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn total_counts_neither_urgent_items_nor_those_that_wait_elsewhere() {
        let queue = WorkQueue::new(Widths { total: 2, ..WIDE });
        for name in ["a-9", "b-8", "c-7", "d-6"] {
            queue.add(key(name));
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("a-9"));
        assert_eq!(poll(&queue).await.as_deref(), Some("b-8"));
        assert_eq!(poll(&queue).await, None);
        let (a, b) = (key("a-9"), key("b-8"));
        let first = queue.wait_elsewhere(&a);
        let second = queue.wait_elsewhere(&a);
        assert_eq!(poll(&queue).await.as_deref(), Some("c-7"));
        assert_eq!(poll(&queue).await, None, "two requests of one object count once");
        drop(first);
        drop(second);
        queue.add(key("d-6"));
        let urgent = |key: &Key| Placement { urgent: key.name == "d-6", ..placement(key) };
        assert_eq!(next(&queue, urgent).await, key("d-6"));
        queue.add(key("e-5"));
        for done in [&a, &b] {
            assert_eq!(poll(&queue).await, None);
            queue.done(done, None);
        }
        assert_eq!(poll(&queue).await.as_deref(), Some("e-5"));
        for name in ["c-7", "d-6", "e-5"] {
            queue.done(&key(name), None);
        }
        assert!(queue.state.lock().lanes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_take_turns_within_one_priority() {
        let queue = WorkQueue::new(Widths { total: 1, ..WIDE });
        let in_namespace = |namespace: &str, name: &str| Key { namespace: namespace.to_owned(), ..key(name) };
        let mut keys: Vec<Key> = (0..100).map(|number| in_namespace("large", &format!("a{number}-5"))).collect();
        keys.extend([in_namespace("small", "a-5"), in_namespace("small", "b-5"), in_namespace("large", "z-6")]);
        for key in &keys {
            queue.add(key.clone());
        }
        let mut order = Vec::new();
        for _ in 0..5 {
            let next = next(&queue, placement).await;
            queue.done(&next, None);
            order.push(format!("{}/{}", next.namespace, next.name));
        }
        assert_eq!(order, ["large/z-6", "small/a-5", "large/a0-5", "small/b-5", "large/a1-5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn item_due_again_while_running_is_reported() {
        let queue = WorkQueue::new(WIDE);
        queue.add(key("a-1"));
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        queue.add(key("a-1"));
        queue.add(key("a-2"));
        let reported = std::cell::RefCell::new(Vec::new());
        assert_eq!(queue.next(placement, |key| reported.borrow_mut().push(key.clone())).await, key("a-2"));
        assert_eq!(*reported.borrow(), [key("a-1")]);
    }

    #[tokio::test(start_paused = true)]
    async fn item_added_while_running_is_handed_out_once_more() {
        let queue = WorkQueue::new(WIDE);
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
        let queue = WorkQueue::new(WIDE);
        queue.add_after(key("a-1"), Duration::from_mins(1));
        queue.add_after(key("a-1"), Duration::from_secs(10));
        queue.add_after(key("a-1"), Duration::from_secs(30));
        let before = Instant::now();
        assert_eq!(next(&queue, placement).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 10);
        queue.done(&key("a-1"), Some(Duration::from_secs(5)));
        assert_eq!(next(&queue, placement).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn requeue_without_delay_waits() {
        let queue = WorkQueue::new(WIDE);
        queue.add(key("a-1"));
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        queue.done(&key("a-1"), Some(Duration::ZERO));
        assert_eq!(poll(&queue).await, None);
        tokio::time::advance(MIN_REQUEUE).await;
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
        // An event is not delayed.
        queue.add(key("a-1"));
        queue.done(&key("a-1"), Some(Duration::ZERO));
        assert_eq!(poll(&queue).await.as_deref(), Some("a-1"));
    }

    #[tokio::test]
    async fn items_that_are_always_due_do_not_starve_other_branches() {
        let queue = WorkQueue::new(WIDE);
        queue.add(key("a-1"));
        let work = async {
            for _ in 0..100_000 {
                let key = next(&queue, placement).await;
                queue.add(key.clone());
                queue.done(&key, None);
            }
        };
        tokio::select! {
            biased;
            () = work => panic!("the other branch was never polled"),
            () = std::future::ready(()) => {}
        }
    }
}
