//! The Nodes of one cluster.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fivespot_api::keys;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::Event;
use kube::{Client, Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::LogLimit;
use super::agent_config::{AgentConfigCache, configured_node, has_agent_label};
use super::known_nodes::KnownNodes;
use super::list_watch::{EventStream, ListWatch, Objects, WatchError, list_watch, map_event};
use super::pod_permits::PodPermits;
use super::requests::{ConfigMaps, get_node};
use super::subscribers::{AffectedNodes, SharedSubscribers};
use super::wire::WorkloadNode;
use crate::runtime::backoff::Backoff;
use crate::runtime::cache::{Cache, CacheEvent, is_unchanged};
use crate::runtime::request::{Operation, Origin, RequestError, WORKLOAD_TIMEOUT, send_to};
use crate::runtime::workqueue::WorkQueue;

/// Nodes that are read at a time.
const MAX_CONCURRENT_READS: usize = 8;
/// A cache of the Nodes of one cluster, and the client for it.
///
/// Of a workload cluster only the Nodes of this controller's Machines are kept: its API server belongs to a tenant, and must
/// not decide how much memory the controller needs.
pub(super) struct NodeCache {
    pub(super) client: Client,
    pub(super) origin: Origin,
    pub(super) pod_permits: PodPermits,
    /// For log lines.
    cluster: String,
    deps: NodeCacheDeps,
    cache: Cache<Node>,
    /// The Nodes that are kept; `None` for the management cluster, where all are.
    known: Option<Mutex<KnownNodes>>,
    /// The watch of the Nodes, unless the owner of the cache runs it.
    watch_task: OnceLock<AbortOnDropHandle<()>>,
    /// The last error of that watch, until it succeeds.
    watch_error: Mutex<Option<String>>,
    /// The agent configurations of this cluster, once an object needs them.
    agent_config: OnceLock<AgentConfigCache>,
    /// The watch of the agent configurations, unless the owner of the cache runs it.
    agent_config_task: OnceLock<AbortOnDropHandle<()>>,
    /// The owner of the cache has to start the watch of the agent configurations.
    agent_config_requested: Notify,
    /// The subscribers of every Cluster whose Nodes are here.
    subscribers: Mutex<Vec<SharedSubscribers>>,
}

/// What the caches of all clusters share.
#[derive(Clone)]
pub(super) struct NodeCacheDeps {
    pub(super) agent_namespace: Arc<str>,
    pub(super) queue: Arc<WorkQueue>,
    pub(super) log_limit: Arc<LogLimit>,
}

impl NodeCache {
    /// A cache of the Nodes of a workload cluster that an object is subscribed to.
    pub(super) fn of_workload_cluster(
        client: Client,
        cluster: String,
        subscribers: SharedSubscribers,
        deps: NodeCacheDeps,
    ) -> Self {
        NodeCache {
            known: Some(Mutex::new(KnownNodes::new(subscribers))),
            ..Self::new(client, cluster, Origin::Workload, deps)
        }
    }

    /// A cache of all Nodes of the management cluster.
    pub(super) fn of_management_cluster(client: Client, deps: NodeCacheDeps) -> Self {
        Self::new(client, "management".to_owned(), Origin::Management, deps)
    }

    fn new(client: Client, cluster: String, origin: Origin, deps: NodeCacheDeps) -> Self {
        NodeCache {
            client,
            origin,
            pod_permits: PodPermits::new(origin),
            cluster,
            deps,
            cache: Cache::reporting_own_writes(()),
            known: None,
            watch_task: OnceLock::new(),
            watch_error: Mutex::default(),
            agent_config: OnceLock::new(),
            agent_config_task: OnceLock::new(),
            agent_config_requested: Notify::new(),
            subscribers: Mutex::default(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.cache.get_cluster_scoped(name)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.cache.is_ready()
    }

    /// Whether these are the Nodes of the management cluster, in which all Clusters without a kubeconfig are searched.
    pub(super) fn is_management(&self) -> bool {
        self.origin == Origin::Management
    }

    /// Whether a Node that is not in the cache does not exist.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.lock().contains(name))
    }

    /// Why a Node cannot be read, and whether it is time to try again.
    pub(super) fn unreadable(&self, name: &str) -> Option<(String, bool)> {
        self.known.as_ref()?.lock().unreadable(name)
    }

    /// An event of a Node was skipped. Returns whether the Node has to be read.
    pub(super) fn mark_outdated(&self, name: &str) -> bool {
        self.known.as_ref().is_some_and(|known| known.lock().mark_outdated(name))
    }

    pub(super) fn watch_error(&self) -> Option<String> {
        self.watch_error.lock().clone()
    }

    pub(super) fn subscribe(&self, subscribers: &SharedSubscribers) {
        self.subscribers.lock().push(Arc::clone(subscribers));
    }

    pub(super) fn unsubscribe(&self, subscribers: &SharedSubscribers) {
        self.subscribers.lock().retain(|other| !Arc::ptr_eq(other, subscribers));
    }

    /// Applies a Node that was just read. One that no object is subscribed to is not kept.
    pub(super) fn apply_read(&self, node: Node) {
        if self.is_known(&node.name_any()) {
            self.cache.apply_read(node);
        }
    }

    pub(super) fn apply_write_response(&self, node: Node) {
        self.cache.apply_write_response(node);
    }

    /// The agent configurations of this cluster, if they are watched.
    pub(super) fn agent_config(&self) -> Option<&AgentConfigCache> {
        self.agent_config.get()
    }

    /// The agent configurations of this cluster. The first call starts the watch.
    pub(super) fn watch_agent_config(self: &Arc<Self>) -> &AgentConfigCache {
        let configs = self.agent_config.get_or_init(|| {
            self.agent_config_requested.notify_one();
            AgentConfigCache::new(self.cluster.clone(), &self.deps)
        });
        if self.origin == Origin::Management {
            self.agent_config_task.get_or_init(|| self.run(self.agent_config_events(), Self::apply_agent_config));
        }
        configs
    }

    /// Waits until the agent configurations are needed.
    pub(super) async fn agent_config_requested(&self) {
        self.agent_config_requested.notified().await;
    }

    /// Watches the agent configurations, with retries.
    pub(super) fn agent_config_events(&self) -> EventStream<ConfigMap> {
        AgentConfigCache::watch(self.client.clone(), self.origin, &self.deps.agent_namespace)
    }

    /// Applies an item of the watch of the agent configurations.
    pub(super) fn apply_agent_config(&self, result: Result<Event<ConfigMap>, WatchError>) {
        let Some(configs) = self.agent_config.get() else { return };
        let is_kept = |config: &ConfigMap| {
            config.metadata.namespace.as_deref() == Some(&*self.deps.agent_namespace)
                && configured_node(config).is_some_and(|node| self.is_known(node))
        };
        match &result {
            Ok(Event::Apply(config) | Event::InitApply(config) | Event::Delete(config)) if !is_kept(config) => {}
            Ok(_) | Err(_) => self.notify(&configs.apply_watch_result(result)),
        }
    }

    pub(super) fn watch(&self) -> EventStream<Node> {
        let path = Node::url_path(&(), None);
        let objects = match self.origin {
            Origin::Management => Objects::Listed,
            Origin::Workload => Objects::ReadByName,
        };
        let of =
            ListWatch { client: self.client.clone(), origin: self.origin, kind: "Node", path, labels: None, objects };
        list_watch::<WorkloadNode>(of).map_ok(|event| map_event(event, |node| node.0)).boxed()
    }

    /// Applies an event of the watch and queues the objects that it concerns.
    pub(super) fn apply_watch_event(&self, event: Event<Node>) {
        if !self.known.as_ref().is_none_or(|known| known.lock().keeps(&event)) {
            return;
        }
        self.notify(&match self.cache.apply_watch_event(event) {
            CacheEvent::Unchanged => AffectedNodes::None,
            CacheEvent::Applied { before: Some(before), after } if is_unchanged(before.as_ref(), &after) => {
                AffectedNodes::None
            }
            CacheEvent::Applied { after: node, .. } | CacheEvent::Deleted { object: node, .. } => {
                AffectedNodes::One(node.name_any())
            }
            CacheEvent::Resynced => AffectedNodes::All,
        });
    }

    /// Watches the Nodes, with retries, until the cache is dropped.
    pub(super) fn start_watch(self: &Arc<Self>) {
        let events = self.watch().backoff(Backoff::watch()).boxed();
        self.watch_task.get_or_init(|| self.run(events, Self::apply_watch_result));
    }

    /// Applies events until the cache is dropped.
    fn run<T: Send + 'static>(
        self: &Arc<Self>,
        mut events: BoxStream<'static, T>,
        apply: fn(&Self, T),
    ) -> AbortOnDropHandle<()> {
        let weak = Arc::downgrade(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let Some(nodes) = weak.upgrade() else { return };
                apply(&nodes, event);
            }
        }))
    }

    fn apply_watch_result(&self, result: Result<Event<Node>, WatchError>) {
        let error_changed = match result {
            Ok(event) => {
                // The start of a list is not a success yet.
                let is_start = matches!(event, Event::Init);
                self.apply_watch_event(event);
                !is_start && self.is_ready() && self.watch_error.lock().take().is_some()
            }
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(cluster = self.cluster, kind = "Node", error, "Watch failed");
                self.watch_error.lock().replace(error).is_none()
            }
        };
        if error_changed {
            self.notify(&AffectedNodes::All);
        }
    }

    /// Whether a list is in progress: an object that is read meanwhile would be lost at its end.
    pub(super) fn is_listing(&self) -> bool {
        let lists_nodes = self.known.as_ref().is_some_and(|known| known.lock().is_listing());
        lists_nodes || self.agent_config().is_some_and(AgentConfigCache::is_listing)
    }

    /// Reads the Nodes whose state is not known. Events of the watch must not be applied meanwhile: afterwards, the older ones
    /// change nothing and the newer ones are applied. Fails if the connection is lost; what a response says concerns only its
    /// Node.
    pub(super) async fn read_unknown(&self) -> Result<(), RequestError> {
        let Some(known) = &self.known else { return Ok(()) };
        let names = known.lock().unknown(&self.cache);
        let reads = futures::stream::iter(names).map(|name| async { (self.read(&name).await, name) });
        let mut reads = reads.buffer_unordered(MAX_CONCURRENT_READS);
        while let Some((result, name)) = reads.next().await {
            match result {
                Ok((node, config)) => {
                    known.lock().insert(&name);
                    self.apply_known(&name, node, config);
                }
                Err(error) if error.is_violation() => {
                    if self.deps.log_limit.allows(&format!("Nodes of {}", self.cluster)) {
                        tracing::warn!(cluster = self.cluster, error = error.text(), "Cannot read Node");
                    }
                    known.lock().insert_unreadable(&name, error.to_string());
                    self.apply_known(&name, None, None);
                }
                Err(error) => return Err(error),
            }
            self.notify(&AffectedNodes::One(name));
        }
        Ok(())
    }

    fn apply_known(&self, name: &str, node: Option<Node>, config: Option<ConfigMap>) {
        if let Some(node) = node {
            self.cache.apply_watch_event(Event::Apply(node));
        } else if let Some(cached) = self.get(name) {
            self.cache.mark_deleted(&cached);
        }
        if let (Some(configs), Some(config)) = (self.agent_config(), config) {
            configs.apply_watch_result(Ok(Event::Apply(config)));
        }
    }

    async fn read(&self, name: &str) -> Result<(Option<Node>, Option<ConfigMap>), RequestError> {
        let operation = Operation::new("read", format!("Node {name}"));
        let node = send_to(self.origin, WORKLOAD_TIMEOUT, operation, get_node(&self.client, name)).await?;
        if !self.agent_config().is_some_and(AgentConfigCache::is_ready) {
            return Ok((node, None));
        }
        let (namespace, config) = (&self.deps.agent_namespace, keys::reclaim_config_map(name));
        let operation = Operation::new("read", format!("ConfigMap {namespace}/{config}"));
        let config_maps = ConfigMaps::new(self.client.clone(), namespace);
        let config = send_to(self.origin, WORKLOAD_TIMEOUT, operation, config_maps.get(&config)).await?;
        Ok((node, config.filter(has_agent_label)))
    }

    fn notify(&self, affected: &AffectedNodes) {
        let delay = match (&self.known, affected) {
            (Some(known), AffectedNodes::One(node)) => known.lock().delay(node),
            (Some(_) | None, _) => Duration::ZERO,
        };
        for subscribers in self.subscribers.lock().iter() {
            subscribers.lock().notify(affected, delay, &self.deps.queue);
        }
    }
}

/// Whether the agent requests the machine. Only the literal value counts.
pub(crate) fn has_reclaim_request(node: &Node) -> bool {
    node.annotations().get(keys::RECLAIM_REQUESTED_ANNOTATION).is_some_and(|it| it == keys::RECLAIM_REQUESTED)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::LOG_INTERVAL;
    use super::super::requests::tests::{client, responding_client};
    use super::*;
    use crate::runtime::workqueue::{Key, Widths};

    fn nodes(client: Client) -> NodeCache {
        let deps = NodeCacheDeps {
            agent_namespace: "agents".into(),
            queue: Arc::new(WorkQueue::new(Widths { total: 1, lane: 1, namespace: 1 })),
            log_limit: Arc::new(LogLimit::new(LOG_INTERVAL)),
        };
        let subscribers = SharedSubscribers::default();
        subscribers.lock().add(&Key { namespace: "team".to_owned(), name: "desk".to_owned() }, "n1");
        let nodes = NodeCache::of_workload_cluster(client, "team/edge".to_owned(), Arc::clone(&subscribers), deps);
        nodes.subscribe(&subscribers);
        nodes
    }

    fn subscribe(nodes: &NodeCache, name: &str, node: &str) {
        nodes.subscribers.lock()[0].lock().add(&Key { namespace: "team".to_owned(), name: name.to_owned() }, node);
    }

    fn node(namespace: &str, name: &str) -> Node {
        let node: WorkloadNode =
            serde_json::from_value(json!({ "metadata": { "namespace": namespace, "name": name } })).unwrap();
        node.0
    }

    fn config(namespace: &str, node: &str) -> ConfigMap {
        let mut config = ConfigMap::default();
        config.metadata.namespace = Some(namespace.to_owned());
        config.metadata.name = Some(keys::reclaim_config_map(node));
        config
    }

    #[tokio::test]
    async fn only_subscribed_objects_are_kept_whatever_namespaces_and_names_a_server_invents() {
        let nodes = Arc::new(nodes(client(&json!({}))));
        nodes.watch_agent_config();
        let numbered = |prefix: &str, number: u32| format!("{prefix}-{number}");
        for event in
            [Event::Init, Event::InitApply(node("a", "n1")), Event::InitApply(node("b", "n1")), Event::InitDone]
        {
            nodes.apply_watch_event(event);
        }
        for number in 0..10 {
            nodes.apply_watch_event(Event::Apply(node(&numbered("ns", number), "n1")));
            nodes.apply_watch_event(Event::Apply(node("a", &numbered("n", number + 2))));
            nodes.apply_read(node("a", &numbered("n", number + 2)));
            for event in [Event::Init, Event::InitDone] {
                nodes.apply_agent_config(Ok(event));
            }
            nodes.apply_agent_config(Ok(Event::Apply(config(&numbered("ns", number), "n1"))));
            nodes.apply_agent_config(Ok(Event::Apply(config("agents", &numbered("n", number + 2)))));
            nodes.apply_agent_config(Ok(Event::Apply(config("agents", "n1"))));
        }
        assert_eq!(nodes.cache.all().len(), 1);
        assert!(nodes.get("n1").is_some());
        let configs = nodes.agent_config().unwrap();
        assert_eq!(configs.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn node_that_cannot_be_read_concerns_no_other() {
        let nodes = nodes(responding_client(|path| match path.rsplit('/').next() {
            Some("n2") => json!({ "metadata": { "name": "n2" }, "spec": { "taints": "none" } }).to_string(),
            name => json!({ "metadata": { "name": name, "resourceVersion": "5" } }).to_string(),
        }));
        subscribe(&nodes, "other", "n2");
        for event in [Event::Init, Event::InitDone] {
            nodes.apply_watch_event(event);
        }
        assert!(!nodes.is_known("n1") && !nodes.is_known("n2"));
        nodes.read_unknown().await.unwrap();
        assert!(nodes.get("n1").is_some() && nodes.get("n2").is_none());
        assert!(nodes.is_known("n2") && nodes.unreadable("n1").is_none());
        let (cause, is_due) = nodes.unreadable("n2").unwrap();
        assert_eq!((cause.as_str(), is_due), ("cannot read Node n2: invalid response", false));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(nodes.unreadable("n2").unwrap().1);
        // Its next event can be decoded.
        nodes.apply_watch_event(Event::Apply(node("a", "n2")));
        assert!(nodes.get("n2").is_some() && nodes.unreadable("n2").is_none());
    }

    #[tokio::test]
    async fn node_whose_event_was_skipped_is_read() {
        let nodes = nodes(client(&json!({
            "metadata": { "name": "n1", "resourceVersion": "9" }, "spec": { "providerID": "p" },
        })));
        for event in [Event::Init, Event::InitApply(node("a", "n1")), Event::InitDone] {
            nodes.apply_watch_event(event);
        }
        assert!(nodes.mark_outdated("n1") && !nodes.mark_outdated("n1") && !nodes.mark_outdated("n2"));
        assert!(nodes.is_known("n1"));
        nodes.read_unknown().await.unwrap();
        assert_eq!(nodes.get("n1").unwrap().spec.as_ref().unwrap().provider_id.as_deref(), Some("p"));
        assert!(nodes.mark_outdated("n1"));
    }
}
