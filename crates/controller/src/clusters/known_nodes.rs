//! Which Nodes of a workload cluster are kept.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::subscribers::SharedSubscribers;
use crate::runtime::cache::Cache;
use crate::runtime::rate_limit::RateLimit;

/// Events of one Node that queue objects immediately; more are delayed, so that a server that floods the watch causes few
/// reconciles and writes.
const EVENT_BURST: u32 = 10;
const EVENTS_PER_SECOND: u32 = 1;
/// How often a Node is read whose response is too large or invalid.
const REREAD_INTERVAL: Duration = Duration::from_mins(1);

/// The Nodes of a workload cluster that objects are subscribed to, as far as the cache has their state.
pub(super) struct KnownNodes {
    subscribers: SharedSubscribers,
    /// Nodes whose state the cache has, also if they do not exist.
    names: HashSet<String>,
    /// The Nodes that the current list has so far.
    listing: Option<HashSet<String>>,
    /// Nodes whose last event was skipped.
    outdated: HashSet<String>,
    unreadable: HashMap<String, Unreadable>,
    rates: HashMap<String, RateLimit>,
}

/// Why a Node cannot be read: the response is too large or invalid.
struct Unreadable {
    cause: String,
    read_at: Instant,
}

impl KnownNodes {
    pub(super) fn new(subscribers: SharedSubscribers) -> Self {
        KnownNodes {
            subscribers,
            names: HashSet::new(),
            listing: None,
            outdated: HashSet::new(),
            unreadable: HashMap::new(),
            rates: HashMap::new(),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The state of a Node has been read.
    pub(super) fn insert(&mut self, name: &str) {
        self.names.insert(name.to_owned());
        self.unreadable.remove(name);
    }

    /// The state of a Node cannot be read. It counts as known: its cause is.
    pub(super) fn insert_unreadable(&mut self, name: &str, cause: String) {
        self.names.insert(name.to_owned());
        self.unreadable.insert(name.to_owned(), Unreadable { cause, read_at: Instant::now() });
    }

    /// Why a Node cannot be read, and whether it is time to try again.
    pub(super) fn unreadable(&self, name: &str) -> Option<(String, bool)> {
        let Unreadable { cause, read_at } = self.unreadable.get(name)?;
        Some((cause.clone(), read_at.elapsed() >= REREAD_INTERVAL))
    }

    /// An event of a Node was skipped. Returns whether the Node has to be read.
    pub(super) fn mark_outdated(&mut self, name: &str) -> bool {
        self.names.contains(name) && self.outdated.insert(name.to_owned())
    }

    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Whether an event concerns a Node that is kept.
    pub(super) fn keeps(&mut self, event: &Event<Node>) -> bool {
        match event {
            Event::Init => self.listing = Some(HashSet::new()),
            // What the list does not have may exist nevertheless: it is read by name.
            Event::InitDone => {
                self.names = self.listing.take().unwrap_or_default();
                self.outdated.clear();
                self.unreadable.clear();
            }
            Event::InitApply(node) => {
                let name = node.name_any();
                let is_kept = self.subscribers.lock().contains(&name);
                if let Some(listing) = self.listing.as_mut().filter(|_| is_kept) {
                    listing.insert(name);
                }
                return is_kept;
            }
            Event::Apply(node) | Event::Delete(node) => {
                let name = node.name_any();
                self.unreadable.remove(&name);
                return self.names.contains(&name);
            }
        }
        true
    }

    /// The Nodes that an object is subscribed to and whose state is not known, or outdated. Drops those without a subscriber.
    pub(super) fn unknown(&mut self, cache: &Cache<Node>) -> Vec<String> {
        let subscribed = self.subscribers.lock().nodes();
        for dropped in self.names.extract_if(|name| !subscribed.contains(name)) {
            if let Some(node) = cache.get_cluster_scoped(&dropped) {
                cache.mark_deleted(&node);
            }
        }
        self.rates.retain(|name, _| subscribed.contains(name));
        self.unreadable.retain(|name, _| subscribed.contains(name));
        let outdated = std::mem::take(&mut self.outdated);
        subscribed.into_iter().filter(|name| !self.names.contains(name) || outdated.contains(name)).collect()
    }

    /// How long the subscribers of a Node wait for their reconcile.
    pub(super) fn delay(&mut self, node: &str) -> Duration {
        if !self.names.contains(node) {
            return Duration::ZERO;
        }
        let rate = self.rates.entry(node.to_owned());
        rate.or_insert_with(|| RateLimit::new(EVENT_BURST, EVENTS_PER_SECOND)).take_at_most(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::workqueue::Key;

    fn node(name: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node
    }

    #[test]
    fn only_subscribed_nodes_are_kept_and_later_ones_are_read() {
        let subscribers = SharedSubscribers::default();
        let key = |name: &str| Key { namespace: "team".to_owned(), name: name.to_owned() };
        subscribers.lock().add(&key("a"), "n1");
        let (mut known, cache) = (KnownNodes::new(SharedSubscribers::clone(&subscribers)), Cache::new(()));
        assert!(known.keeps(&Event::Init) && known.is_listing());
        assert!(known.keeps(&Event::InitApply(node("n1"))) && !known.keeps(&Event::InitApply(node("n2"))));
        // It may have been in an earlier page.
        subscribers.lock().add(&key("b"), "n2");
        assert!(known.keeps(&Event::InitDone) && !known.is_listing());
        assert!(known.contains("n1") && !known.contains("n2") && !known.keeps(&Event::Apply(node("n2"))));

        assert_eq!(known.unknown(&cache), ["n2"]);
        known.insert("n2");
        assert!(known.keeps(&Event::Apply(node("n2"))) && known.unknown(&cache).is_empty());
        // Nodes without a subscriber are dropped.
        cache.apply_watch_event(Event::Apply(node("n1")));
        subscribers.lock().remove(&key("a"));
        assert!(known.unknown(&cache).is_empty());
        assert!(!known.contains("n1") && cache.get_cluster_scoped("n1").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_changes_is_delayed() {
        let mut known = KnownNodes::new(SharedSubscribers::default());
        known.insert("n1");
        let delays: Vec<Duration> = (0..1000).map(|_| known.delay("n1")).collect();
        assert!(delays[..10].iter().all(Duration::is_zero));
        assert!(delays[10..].iter().all(|delay| *delay == Duration::from_secs(1)));
    }
}
