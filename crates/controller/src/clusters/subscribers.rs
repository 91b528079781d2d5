//! Which objects are queued when a Node changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::runtime::workqueue::{Key, WorkQueue};

/// The Nodes that an event concerns.
pub(super) enum AffectedNodes {
    None,
    One(String),
    All,
}

pub(super) type SharedSubscribers = Arc<Mutex<NodeSubscribers>>;

/// The objects of one Cluster, each subscribed to one Node.
#[derive(Default)]
pub(super) struct NodeSubscribers {
    by_node: HashMap<String, HashSet<Key>>,
    by_key: HashMap<Key, String>,
}

impl NodeSubscribers {
    /// Subscribes an object to this Node, and to no other.
    pub(super) fn add(&mut self, key: &Key, node: &str) {
        if self.by_key.get(key).is_some_and(|current| current == node) {
            return;
        }
        self.remove(key);
        self.by_key.insert(key.clone(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().insert(key.clone());
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(node) = self.by_key.remove(key) else { return };
        if let Some(keys) = self.by_node.get_mut(&node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether an object is subscribed to a Node.
    pub(super) fn contains(&self, node: &str) -> bool {
        self.by_node.contains_key(node)
    }

    /// The Nodes that objects are subscribed to.
    pub(super) fn nodes(&self) -> HashSet<String> {
        self.by_node.keys().cloned().collect()
    }

    /// Queues the subscribers of the affected Nodes.
    pub(super) fn notify(&self, affected: &AffectedNodes, delay: Duration, queue: &WorkQueue) {
        match affected {
            AffectedNodes::None => {}
            AffectedNodes::One(node) => {
                self.by_node.get(node).into_iter().flatten().cloned().for_each(|key| queue.add_after(key, delay));
            }
            AffectedNodes::All => self.by_key.keys().cloned().for_each(|key| queue.add_after(key, delay)),
        }
    }
}
