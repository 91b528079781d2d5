use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinHandle;

use super::urgent_reconciles::MAX_BUDGET;
use super::*;

/// The start of all reconciles, unless it matters.
const STARTED: Timestamp = Timestamp::UNIX_EPOCH;

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap();
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Writes that wait for a permit, in the background.
struct Queue {
    permits: Arc<WritePermits>,
    waiting: Vec<(String, JoinHandle<Permit>)>,
}

impl Queue {
    fn new(total: usize) -> Self {
        Queue { permits: WritePermits::new(total), waiting: Vec::new() }
    }

    /// Adds a write and waits until it is in the queue.
    async fn add(&mut self, write: &str, urgency: Urgency, priority: u8) {
        self.add_started(write, urgency, priority, STARTED).await;
    }

    async fn add_started(&mut self, write: &str, urgency: Urgency, priority: u8, started: Timestamp) {
        let (permits, object) = (Arc::clone(&self.permits), key(write));
        let task = tokio::spawn(async move { permits.acquire(&object, urgency, priority, started).await });
        tokio::task::yield_now().await;
        self.waiting.push((write.to_owned(), task));
    }

    async fn ordinary(&mut self, write: &str, priority: u8) {
        self.add(write, Urgency::Ordinary, priority).await;
    }

    async fn urgent(&mut self, write: &str, priority: u8) {
        self.add(write, Urgency::Urgent, priority).await;
    }

    /// The permits that have been granted since the last call.
    async fn granted(&mut self) -> Vec<(String, Permit)> {
        tokio::task::yield_now().await;
        let (done, waiting): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(|(_, task)| task.is_finished());
        self.waiting = waiting;
        let mut granted = Vec::new();
        for (name, task) in done {
            granted.push((name, task.await.unwrap()));
        }
        granted
    }

    /// The order in which all writes get the only permit.
    async fn order(&mut self) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let mut granted = self.granted().await;
            match granted.pop() {
                Some((name, permit)) => {
                    assert!(granted.is_empty(), "more than one permit");
                    order.push(name);
                    drop(permit);
                }
                None => return order,
            }
        }
    }
}

/// Nothing is left in the queue and all permits are free.
fn assert_idle(permits: &WritePermits) {
    let state = permits.state.lock();
    assert_eq!((state.in_flight, state.ordinary_in_flight), (0, 0));
    assert!(state.levels.is_empty() && state.waiting.is_empty() && !state.urgent.is_any_running());
}

#[tokio::test(start_paused = true)]
async fn urgency_then_priority_then_arrival() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("a/first"), Urgency::Ordinary, 0, STARTED).await;
    queue.ordinary("a/low", 10).await;
    queue.ordinary("a/high", 90).await;
    queue.ordinary("a/high-later", 90).await;
    queue.urgent("a/urgent-low", 1).await;
    queue.urgent("a/urgent-high", 2).await;
    assert!(queue.granted().await.is_empty());
    drop(first);
    assert_eq!(queue.order().await, ["a/urgent-high", "a/urgent-low", "a/high", "a/high-later", "a/low"]);
    assert_idle(&queue.permits);
}

#[tokio::test(start_paused = true)]
async fn reconcile_that_started_first_is_finished_first() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("a/first"), Urgency::Ordinary, 0, STARTED).await;
    for (write, priority, second) in [("a/new", 50, 3), ("a/old", 50, 1), ("a/middle", 50, 2), ("a/high", 90, 9)] {
        let started = Timestamp::from_second(second).unwrap();
        queue.add_started(write, Urgency::Ordinary, priority, started).await;
    }
    drop(first);
    assert_eq!(queue.order().await, ["a/high", "a/old", "a/middle", "a/new"]);
    assert_idle(&queue.permits);
}

#[tokio::test(start_paused = true)]
async fn priority_is_compared_across_namespaces() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("x/first"), Urgency::Ordinary, 0, STARTED).await;
    for (write, priority) in [("a/low", 10), ("b/high", 90), ("c/low", 10), ("a/high", 90), ("b/medium", 50)] {
        queue.ordinary(write, priority).await;
    }
    drop(first);
    assert_eq!(queue.order().await, ["a/high", "b/high", "b/medium", "a/low", "c/low"]);
}

#[tokio::test(start_paused = true)]
async fn ordinary_writes_leave_permits_for_urgent_ones() {
    for (total, ordinary) in [(16, 14), (4, 3), (2, 1)] {
        let mut queue = Queue::new(total);
        for number in 0..20 {
            queue.ordinary(&format!("a/{number}"), 255).await;
        }
        // None of them ends.
        let hanging = queue.granted().await;
        assert_eq!(hanging.len(), ordinary, "of {total}");
        queue.urgent("b/desk", 1).await;
        let granted = queue.granted().await;
        assert_eq!(granted.len(), 1);
        assert_eq!(granted[0].0, "b/desk");
    }
    let mut queue = Queue::new(1);
    queue.ordinary("a/only", 50).await;
    assert_eq!(queue.order().await, ["a/only"]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_within_one_priority() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("x/first"), Urgency::Ordinary, 0, STARTED).await;
    for write in ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"] {
        queue.ordinary(write, 50).await;
    }
    drop(first);
    assert_eq!(queue.order().await, ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]);
}

#[tokio::test(start_paused = true)]
async fn urgent_writes_of_one_namespace_do_not_delay_another_one() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("x/first"), Urgency::Ordinary, 0, STARTED).await;
    for number in 0..1000 {
        queue.urgent(&format!("hostile/{number}"), 255).await;
    }
    queue.urgent("owner/desk", 1).await;
    drop(first);
    let order = queue.order().await;
    let place = order.iter().position(|write| write == "owner/desk").unwrap();
    assert!(place <= 1, "{place}");
    assert_eq!(order.len(), 1001);
}

#[tokio::test(start_paused = true)]
async fn urgent_writes_of_one_namespace_leave_permits_for_others() {
    let mut queue = Queue::new(4);
    for number in 0..10 {
        queue.urgent(&format!("hostile/{number}"), 255).await;
    }
    queue.ordinary("other/desk", 1).await;
    let granted = queue.granted().await;
    let names: Vec<&str> = granted.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["hostile/0", "hostile/1", "other/desk"]);
}

#[tokio::test(start_paused = true)]
async fn namespace_with_fewest_permits_goes_next() {
    let mut queue = Queue::new(4);
    // The writes of a are slow.
    for write in ["a/1", "a/2", "a/3", "a/4"] {
        queue.ordinary(write, 50).await;
    }
    let mut slow = queue.granted().await;
    assert_eq!(slow.len(), 3);
    for write in ["b/1", "b/2"] {
        queue.ordinary(write, 50).await;
    }
    slow.pop();
    let granted = queue.granted().await;
    assert_eq!(granted[0].0, "b/1");
    slow.pop();
    let granted = [granted, queue.granted().await].concat_names();
    assert_eq!(granted, ["b/1", "a/4"]);
}

trait Names {
    fn concat_names(self) -> Vec<String>;
}

impl Names for [Vec<(String, Permit)>; 2] {
    fn concat_names(self) -> Vec<String> {
        self.into_iter().flatten().map(|(name, _)| name).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_write_becomes_urgent() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("a/first"), Urgency::Ordinary, 0, STARTED).await;
    queue.ordinary("a/other", 90).await;
    queue.ordinary("a/desk", 1).await;
    queue.permits.promote(&key("a/desk"));
    queue.permits.promote(&key("a/unknown"));
    drop(first);
    assert_eq!(queue.order().await, ["a/desk", "a/other"]);
    assert_idle(&queue.permits);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_leaves_queue_and_returns_permit() {
    let mut queue = Queue::new(1);
    let first = queue.permits.acquire(&key("a/first"), Urgency::Ordinary, 0, STARTED).await;
    queue.ordinary("a/cancelled", 90).await;
    queue.waiting.pop().unwrap().1.abort();
    tokio::task::yield_now().await;
    assert!(queue.permits.state.lock().waiting.is_empty());

    // The permit is granted, but the waiter is dropped before it has taken it.
    let cancelled = key("a/granted");
    let mut waiter = Box::pin(queue.permits.acquire(&cancelled, Urgency::Ordinary, 0, STARTED));
    assert!((&mut waiter).now_or_never().is_none());
    drop(first);
    drop(waiter);
    assert_idle(&queue.permits);
    drop(queue.permits.acquire(&key("a/next"), Urgency::Ordinary, 0, STARTED).now_or_never().unwrap());
}

#[tokio::test(start_paused = true)]
async fn urgent_reconcile_holds_other_writes_back_for_a_limited_time() {
    let mut queue = Queue::new(16);
    let urgent = queue.permits.urgent_reconcile("b");
    assert_eq!(queue.permits.load(), Load::Busy);
    for number in 0..20 {
        queue.ordinary(&format!("a/{number}"), 50).await;
    }
    let mut granted = queue.granted().await;
    assert_eq!(granted.len(), 16 / ORDINARY_SHARE);
    queue.urgent("b/desk", 1).await;
    assert_eq!(queue.granted().await.len(), 1);
    tokio::time::advance(MAX_BUDGET).await;
    granted.pop();
    granted.extend(queue.granted().await);
    let all = 16 - 16 / RESERVED_SHARE;
    assert_eq!(granted.len(), all, "the urgent reconcile lasts too long to hold others back");
    granted.clear();
    assert_eq!(queue.granted().await.len(), 20 - 1 - all);
    assert_ne!(queue.permits.load(), Load::Busy, "the urgent reconcile lasts too long to hold events back");
    drop(urgent);
    assert_idle(&queue.permits);
}

#[tokio::test(start_paused = true)]
async fn overloaded_server_gets_no_write_before_it_accepts_them() {
    let mut queue = Queue::new(16);
    for number in 0..8 {
        queue.ordinary(&format!("a/{number}"), 50).await;
    }
    let in_flight = queue.granted().await;
    assert_eq!((in_flight.len(), queue.permits.load()), (8, Load::Heavy));
    let second = Duration::from_secs(1);
    assert!(queue.permits.pause(2 * second));
    assert!(!queue.permits.pause(second), "the pause ends later than requested now");
    // Their permits are returned, which grants none to others.
    drop(in_flight);
    for number in 0..20 {
        queue.ordinary(&format!("a/{number}"), 50).await;
    }
    queue.urgent("b/desk", 1).await;
    tokio::time::sleep(Duration::from_millis(1999)).await;
    assert!(queue.granted().await.is_empty());
    assert_eq!(queue.permits.load(), Load::Busy);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(queue.permits.paused_until(), None);
    // The urgent one, and half as many of the others as before. Each success allows one more.
    let (urgent, mut ordinary): (Vec<_>, Vec<_>) =
        queue.granted().await.into_iter().partition(|(name, _)| name == "b/desk");
    assert_eq!((urgent.len(), ordinary.len()), (1, 4));
    ordinary.pop();
    ordinary.extend(queue.granted().await);
    assert_eq!(ordinary.len(), 5);
    drop((urgent, ordinary));
    while !queue.granted().await.is_empty() {}
    assert_idle(&queue.permits);
    assert_eq!(queue.permits.load(), Load::Idle);
}

#[test]
fn every_write_gets_a_permit_and_every_permit_is_returned() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let permits = WritePermits::new(3);
        let tasks: Vec<_> = (0..2000)
            .map(|number: u32| {
                let permits = Arc::clone(&permits);
                tokio::spawn(async move {
                    let object = key(&format!("ns-{}/{number}", number % 7));
                    let urgency = if number.is_multiple_of(5) { Urgency::Urgent } else { Urgency::Ordinary };
                    let _urgent = number.is_multiple_of(25).then(|| permits.urgent_reconcile(&object.namespace));
                    let wait = permits.acquire(&object, urgency, (number % 3) as u8, STARTED);
                    if number.is_multiple_of(3) {
                        // Cancelled somewhere.
                        let _ = tokio::time::timeout(Duration::from_micros(u64::from(number)), wait).await;
                    } else {
                        let _permit = wait.await;
                        tokio::task::yield_now().await;
                        permits.promote(&object);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_idle(&permits);
    });
}
