//! Which object is looked at next.
//!
//! An object is due at once when something happened to it, or at an instant. Those that are due wait in the lane of their
//! cluster, the most important first. Each lane takes so many at a time and no more, so that a cluster which answers
//! slowly holds up none but its own, and no object is ever in two passes at once. Those that somebody waits for have lanes of
//! their own, ahead of all others.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;

/// An object, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where an object waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Those of one lane wait for each other.
    pub(crate) lane: String,
    /// Somebody waits for it: it goes first, and waits for none but its like.
    pub(crate) urgent: bool,
    /// Higher goes first.
    pub(crate) priority: u8,
}

/// Objects that are to be looked at.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    lane_width: usize,
}

#[derive(Default)]
struct State {
    /// When each object is due that is not due yet.
    timers: BTreeSet<(Instant, Key)>,
    due_at: HashMap<Key, Instant>,
    /// Those that are due, in their lanes.
    lanes: HashMap<Lane, BTreeSet<Waiting>>,
    /// Where each of them waits, and since when.
    waiting: HashMap<Key, (Place, u64)>,
    /// Those that are being looked at, each with its lane, and how many there are in each lane.
    running: HashMap<Key, Lane>,
    width: HashMap<Lane, usize>,
    /// Those to which something happened meanwhile.
    again: HashSet<Key>,
    /// So that of two as important the one that came first goes first.
    sequence: u64,
}

/// The name of a lane, and whether it is that of the urgent.
type Lane = (String, bool);
type Waiting = (Reverse<bool>, Reverse<u8>, u64, Key);

impl Place {
    fn lane(&self) -> Lane {
        (self.lane.clone(), self.urgent)
    }

    fn of(&self, key: &Key, sequence: u64) -> Waiting {
        (Reverse(self.urgent), Reverse(self.priority), sequence, key.clone())
    }
}

impl Queue {
    /// A queue that gives out at most `lane_width` objects of a lane at a time.
    pub(crate) fn new(lane_width: usize) -> Self {
        Queue { state: Mutex::default(), changed: Notify::new(), lane_width }
    }

    /// Something happened to an object: it is due.
    pub(crate) fn push(&self, key: Key) {
        self.push_after(key, Duration::ZERO);
    }

    /// An object is due after a while, unless it is due before that anyway.
    pub(crate) fn push_after(&self, key: Key, wait: Duration) {
        self.lock().set_timer(key, Instant::now() + wait);
        self.changed.notify_one();
    }

    /// The next object to look at. `place` says where an object waits.
    pub(crate) async fn next(&self, place: impl Fn(&Key) -> Place) -> Key {
        loop {
            let due = self.lock().take_due(Instant::now());
            // Where they wait is asked without a lock: whoever answers may have to look at what somebody holds who pushes.
            let placed: Vec<(Key, Place)> = due.into_iter().map(|key| (key.clone(), place(&key))).collect();
            let until = {
                let mut state = self.lock();
                for (key, place) in placed {
                    state.enter(key, place);
                }
                if let Some(key) = state.take(self.lane_width) {
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            let timer = async {
                match until {
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

    /// An object has been looked at, and is due again after a while, or when something happens.
    pub(crate) fn done(&self, key: &Key, again_after: Option<Duration>) {
        let mut state = self.lock();
        if let Some(lane) = state.running.remove(key)
            && let Some(width) = state.width.get_mut(&lane)
        {
            *width -= 1;
            if *width == 0 {
                state.width.remove(&lane);
            }
        }
        let again = state.again.remove(key).then_some(Duration::ZERO);
        if let Some(wait) = again.or(again_after) {
            state.set_timer(key.clone(), Instant::now() + wait);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How many objects are being looked at.
    pub(crate) fn running(&self) -> usize {
        self.lock().running.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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

    /// Those that are due and nobody looks at; who is looked at is due again when that is over.
    fn take_due(&mut self, now: Instant) -> Vec<Key> {
        let mut due = Vec::new();
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.due_at.remove(&key);
            if self.running.contains_key(&key) {
                self.again.insert(key);
            } else {
                due.push(key);
            }
        }
        due
    }

    /// Has one wait in its place. One that waits already keeps its turn, and moves if what happened made it more urgent.
    fn enter(&mut self, key: Key, place: Place) {
        let sequence = match self.waiting.get(&key) {
            Some((before, _)) if *before == place => return,
            Some((before, sequence)) => {
                let (before, sequence) = (before.clone(), *sequence);
                self.leave(&before.lane(), &before.of(&key, sequence));
                sequence
            }
            None => {
                self.sequence += 1;
                self.sequence
            }
        };
        self.lanes.entry(place.lane()).or_default().insert(place.of(&key, sequence));
        self.waiting.insert(key, (place, sequence));
    }

    /// Takes one out of a lane in which it waits.
    fn leave(&mut self, lane: &Lane, one: &Waiting) {
        if let Some(waiting) = self.lanes.get_mut(lane) {
            waiting.remove(one);
            if waiting.is_empty() {
                self.lanes.remove(lane);
            }
        }
    }

    fn take(&mut self, lane_width: usize) -> Option<Key> {
        let free = |lane: &Lane| self.width.get(lane).is_none_or(|it| *it < lane_width);
        let (first, lane) = self
            .lanes
            .iter()
            .filter(|(lane, _)| free(lane))
            .filter_map(|(lane, waiting)| waiting.first().map(|first| (first, lane)))
            .min()
            .map(|(first, lane)| (first.clone(), lane.clone()))?;
        self.leave(&lane, &first);
        let key = first.3;
        self.waiting.remove(&key);
        *self.width.entry(lane.clone()).or_default() += 1;
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
    fn place(key: &Key) -> Place {
        let (lane, priority) = key.name.split_once('-').unwrap();
        Place { lane: lane.to_owned(), urgent: false, priority: priority.parse().unwrap() }
    }

    async fn soon(queue: &Queue) -> Option<String> {
        tokio::time::timeout(Duration::from_millis(1), queue.next(place)).await.ok().map(|it| it.name)
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_important_goes_first() {
        let queue = Queue::new(9);
        for name in ["a-1", "a-3", "b-2"] {
            queue.push(key(name));
        }
        assert_eq!(soon(&queue).await.as_deref(), Some("a-3"));
        assert_eq!(soon(&queue).await.as_deref(), Some("b-2"));
        assert_eq!(soon(&queue).await.as_deref(), Some("a-1"));
        assert_eq!(soon(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_is_full_holds_up_no_other() {
        let queue = Queue::new(1);
        for name in ["slow-9", "slow-8", "fast-1"] {
            queue.push(key(name));
        }
        assert_eq!(soon(&queue).await.as_deref(), Some("slow-9"));
        assert_eq!(soon(&queue).await.as_deref(), Some("fast-1"));
        assert_eq!(soon(&queue).await, None);
        queue.done(&key("slow-9"), None);
        assert_eq!(soon(&queue).await.as_deref(), Some("slow-8"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_waited_for_goes_before_all_others_and_past_a_lane_that_is_full() {
        let queue = Queue::new(1);
        for name in ["a-9", "a-8", "a-1", "b-7"] {
            queue.push(key(name));
        }
        assert_eq!(soon(&queue).await.as_deref(), Some("a-9"));
        // It waits already when somebody begins to wait for it.
        queue.push(key("a-1"));
        let urgent = |it: &Key| Place { urgent: it.name == "a-1", ..place(it) };
        assert_eq!(queue.next(urgent).await, key("a-1"));
        assert_eq!(queue.next(urgent).await, key("b-7"));
        for name in ["a-9", "a-1", "b-7"] {
            queue.done(&key(name), None);
        }
        assert_eq!(soon(&queue).await.as_deref(), Some("a-8"));
        assert_eq!(soon(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_never_in_two_passes_and_no_event_is_lost() {
        let queue = Queue::new(9);
        queue.push(key("a-1"));
        assert_eq!(soon(&queue).await.as_deref(), Some("a-1"));
        queue.push(key("a-1"));
        assert_eq!(soon(&queue).await, None);
        queue.done(&key("a-1"), None);
        assert_eq!(soon(&queue).await.as_deref(), Some("a-1"));
        queue.done(&key("a-1"), None);
        assert_eq!(soon(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_instants_the_earlier_counts() {
        let queue = Queue::new(9);
        queue.push_after(key("a-1"), Duration::from_mins(1));
        queue.push_after(key("a-1"), Duration::from_secs(10));
        queue.push_after(key("a-1"), Duration::from_secs(30));
        let before = Instant::now();
        assert_eq!(queue.next(place).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 10);
        queue.done(&key("a-1"), Some(Duration::from_secs(5)));
        assert_eq!(queue.next(place).await, key("a-1"));
        assert_eq!(before.elapsed().as_secs(), 15);
    }
}
