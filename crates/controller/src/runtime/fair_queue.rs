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

    /// Takes the first item of the namespace whose turn it is. Only one task may wait.
    pub(crate) async fn pop(&self) -> T {
        loop {
            if let Some(item) = self.state.lock().pop() {
                return item;
            }
            self.added.notified().await;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().len == 0
    }
}

impl<T> State<T> {
    fn push(&mut self, namespace: &str, item: T) {
        self.len += 1;
        if let Some(queue) = self.by_namespace.get_mut(namespace) {
            queue.push_back(item);
        } else {
            self.by_namespace.insert(namespace.to_owned(), VecDeque::from([item]));
            self.turns.push_back(namespace.to_owned());
        }
    }

    fn pop(&mut self) -> Option<T> {
        let namespace = self.turns.pop_front()?;
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
    use futures::FutureExt as _;

    use super::*;

    fn drain(queue: &FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop().now_or_never()).collect()
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

    #[tokio::test]
    async fn item_that_is_added_later_is_taken() {
        let queue = FairQueue::new(1);
        let (item, dropped) = tokio::join!(queue.pop(), async { queue.push("a", "a1") });
        assert_eq!((item, dropped), ("a1", None));
    }
}
