//! A bounded queue in which namespaces take turns, so that no tenant can fill it for others.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) struct FairQueue<T> {
    state: Mutex<State<T>>,
    added: Notify,
    max_len: usize,
}

struct State<T> {
    /// Never empty.
    by_namespace: HashMap<String, VecDeque<T>>,
    /// The namespaces that have items, in the order of their turns.
    turns: VecDeque<String>,
    len: usize,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(max_len: usize) -> Self {
        let state = State { by_namespace: HashMap::new(), turns: VecDeque::new(), len: 0 };
        FairQueue { state: Mutex::new(state), added: Notify::new(), max_len }
    }

    /// Adds an item. If the queue is full, the newest item of the namespace with the most items is dropped and returned,
    /// which may be the one that was added.
    pub(crate) fn push(&self, namespace: &str, item: T) -> Option<T> {
        let mut state = self.state.lock();
        state.push(namespace, item);
        let dropped = if state.len > self.max_len { state.drop_newest_of_longest() } else { None };
        drop(state);
        self.added.notify_one();
        dropped
    }

    /// Returns an item that was taken, as the first of its namespace. The queue may exceed its limit by such items.
    pub(crate) fn push_front(&self, namespace: &str, item: T) {
        self.state.lock().push_front(namespace, item);
        self.added.notify_one();
    }

    /// Takes the first item of the next namespace that may have a turn.
    pub(crate) fn pop_if(&self, may_have_turn: impl Fn(&str) -> bool) -> Option<T> {
        self.state.lock().pop_if(may_have_turn)
    }

    /// Waits until an item is added, or was since the last call. Only one task may wait.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().len == 0
    }
}

impl<T> State<T> {
    fn push(&mut self, namespace: &str, item: T) {
        self.queue(namespace).push_back(item);
    }

    fn push_front(&mut self, namespace: &str, item: T) {
        self.queue(namespace).push_front(item);
    }

    /// The queue of a namespace that gets one more item.
    fn queue(&mut self, namespace: &str) -> &mut VecDeque<T> {
        self.len += 1;
        if !self.by_namespace.contains_key(namespace) {
            self.turns.push_back(namespace.to_owned());
        }
        self.by_namespace.entry(namespace.to_owned()).or_default()
    }

    fn pop_if(&mut self, may_have_turn: impl Fn(&str) -> bool) -> Option<T> {
        let turn = self.turns.iter().position(|namespace| may_have_turn(namespace))?;
        let namespace = self.turns.remove(turn)?;
        let queue = self.by_namespace.get_mut(&namespace)?;
        let item = queue.pop_front();
        self.len -= 1;
        if queue.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        item
    }

    fn drop_newest_of_longest(&mut self) -> Option<T> {
        let (namespace, queue) = self.by_namespace.iter_mut().max_by_key(|(_, queue)| queue.len())?;
        let dropped = queue.pop_back();
        self.len -= 1;
        if queue.is_empty() {
            let namespace = namespace.clone();
            self.by_namespace.remove(&namespace);
            self.turns.retain(|it| *it != namespace);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop_if(|_| true)).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let queue = FairQueue::new(10);
        for item in ["a1", "a2", "a3", "b1"] {
            assert_eq!(queue.push(&item[..1], item), None);
        }
        assert_eq!(drain(&queue), ["a1", "b1", "a2", "a3"]);
        assert!(queue.is_empty() && queue.state.lock().by_namespace.is_empty());
    }

    #[test]
    fn full_queue_drops_items_of_the_namespace_that_filled_it() {
        let queue = FairQueue::new(3);
        for item in ["a1", "a2", "a3"] {
            assert_eq!(queue.push("a", item), None);
        }
        assert_eq!(queue.push("a", "a4"), Some("a4"));
        assert_eq!(queue.push("b", "b1"), Some("a3"));
        assert_eq!(drain(&queue), ["a1", "b1", "a2"]);
    }

    #[test]
    fn namespace_without_a_turn_is_skipped() {
        let queue = FairQueue::new(10);
        for item in ["a1", "a2", "b1", "c1"] {
            queue.push(&item[..1], item);
        }
        assert_eq!(queue.pop_if(|namespace| namespace != "a"), Some("b1"));
        assert_eq!(queue.pop_if(|namespace| namespace == "b"), None);
        queue.push_front("b", "b1");
        queue.push("b", "b2");
        assert_eq!(drain(&queue), ["a1", "c1", "b1", "a2", "b2"]);
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn item_that_is_added_later_is_noticed() {
        let queue = FairQueue::new(1);
        tokio::join!(queue.added(), async { queue.push("a", "a1") });
        assert_eq!(drain(&queue), ["a1"]);
    }
}
