//! Which Nodes of a workload cluster are kept.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::subscribers::SharedSubscribers;
use crate::runtime::cache::Cache;
use crate::runtime::rate_limit::RateLimit;

/// Events of one Node that queue objects immediately; more are delayed, so that a server that floods the watch causes few
/// reconciles and writes.
const EVENT_BURST: u32 = 10;
const EVENTS_PER_SECOND: u32 = 1;

/// The Nodes of a workload cluster that objects are subscribed to, as far as the cache has their state.
pub(super) struct KnownNodes {
    subscribers: SharedSubscribers,
    /// Nodes whose state the cache has, also if they do not exist.
    names: HashSet<String>,
    /// The Nodes that the current list adds.
    listing: Option<HashSet<String>>,
    rates: HashMap<String, RateLimit>,
}

impl KnownNodes {
    pub(super) fn new(subscribers: SharedSubscribers) -> Self {
        KnownNodes { subscribers, names: HashSet::new(), listing: None, rates: HashMap::new() }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn insert(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Whether an event concerns a Node that is kept.
    pub(super) fn keeps(&mut self, event: &Event<Node>) -> bool {
        match event {
            Event::Init => self.listing = Some(self.subscribers.lock().nodes()),
            Event::InitDone => self.names = self.listing.take().unwrap_or_default(),
            Event::InitApply(node) => {
                return self.listing.as_ref().is_some_and(|names| names.contains(&node.name_any()));
            }
            Event::Apply(node) | Event::Delete(node) => return self.names.contains(&node.name_any()),
        }
        true
    }

    /// The Nodes that an object is subscribed to and whose state is not known. Drops those without a subscriber.
    pub(super) fn unknown(&mut self, cache: &Cache<Node>) -> Vec<String> {
        let subscribed = self.subscribers.lock().nodes();
        for dropped in self.names.extract_if(|name| !subscribed.contains(name)) {
            if let Some(node) = cache.get_cluster_scoped(&dropped) {
                cache.mark_deleted(&node);
            }
        }
        self.rates.retain(|name, _| subscribed.contains(name));
        subscribed.into_iter().filter(|name| !self.names.contains(name)).collect()
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
        assert!(!known.keeps(&Event::InitApply(node("n2"))));
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
