//! The Nodes of one cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use fivespot_api::keys;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::agent_config::AgentConfigCache;
use super::subscribers::{AffectedNodes, SharedSubscribers};
use crate::runtime::cache::{Cache, CacheEvent, is_unchanged};
use crate::runtime::watches::{describe_watch_error, watch_with_retries};
use crate::runtime::workqueue::WorkQueue;

/// Name of the management cluster in log lines. The name of a workload cluster has a slash.
pub(super) const MANAGEMENT: &str = "management";

/// A cache of the Nodes of one cluster, and the client for it.
pub(super) struct NodeCache {
    pub(super) client: Client,
    /// For log lines.
    cluster: String,
    agent_namespace: Arc<str>,
    queue: Arc<WorkQueue>,
    cache: Cache<Node>,
    /// The watch of the Nodes, unless the owner of the cache runs it.
    watch_task: OnceLock<AbortOnDropHandle<()>>,
    /// The last error of that watch, until it succeeds.
    watch_error: Mutex<Option<String>>,
    /// The agent configurations of this cluster and their watch, once an object needs them.
    agent_config: OnceLock<(Arc<AgentConfigCache>, AbortOnDropHandle<()>)>,
    /// The subscribers of every Cluster whose Nodes are here.
    subscribers: Mutex<Vec<SharedSubscribers>>,
}

impl NodeCache {
    pub(super) fn new(client: Client, cluster: String, agent_namespace: Arc<str>, queue: Arc<WorkQueue>) -> Self {
        NodeCache {
            client,
            cluster,
            agent_namespace,
            queue,
            cache: Cache::reporting_own_writes(()),
            watch_task: OnceLock::new(),
            watch_error: Mutex::default(),
            agent_config: OnceLock::new(),
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
        self.cluster == MANAGEMENT
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

    pub(super) fn apply_read(&self, mut node: Node) {
        trim(&mut node);
        self.cache.apply_read(node);
    }

    pub(super) fn apply_write_response(&self, mut node: Node) {
        trim(&mut node);
        self.cache.apply_write_response(node);
    }

    /// The agent configurations of this cluster, if they are watched.
    pub(super) fn agent_config(&self) -> Option<&AgentConfigCache> {
        self.agent_config.get().map(|(configs, _)| configs.as_ref())
    }

    /// The agent configurations of this cluster. The first call starts the watch.
    pub(super) fn watch_agent_config(self: &Arc<Self>) -> &AgentConfigCache {
        let (configs, _) = self.agent_config.get_or_init(|| {
            let configs = AgentConfigCache::new(self.cluster.clone(), Arc::clone(&self.agent_namespace));
            let configs = Arc::new(configs);
            let mut stream = Box::pin(configs.watch(self.client.clone()));
            let (watched, nodes) = (Arc::clone(&configs), Arc::downgrade(self));
            let task = tokio::spawn(async move {
                while let Some(result) = stream.next().await {
                    let Some(nodes) = nodes.upgrade() else { return };
                    nodes.notify(&watched.apply_watch_result(result));
                }
            });
            (configs, AbortOnDropHandle::new(task))
        });
        configs
    }

    pub(super) fn watch(&self) -> impl Stream<Item = Result<watcher::Event<Node>, watcher::Error>> + Send + 'static {
        watcher(Api::all(self.client.clone()), watcher::Config::default())
    }

    /// Applies an event of the watch and queues the objects that it concerns.
    pub(super) fn apply_watch_event(&self, event: watcher::Event<Node>) {
        self.notify(&match self.cache.apply_watch_event(event.modify(trim)) {
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
        let weak = Arc::downgrade(self);
        let mut stream =
            Box::pin(watch_with_retries(Api::<Node>::all(self.client.clone()), watcher::Config::default()));
        self.watch_task.get_or_init(|| {
            AbortOnDropHandle::new(tokio::spawn(async move {
                while let Some(result) = stream.next().await {
                    let Some(nodes) = weak.upgrade() else { return };
                    nodes.apply_watch_result(result);
                }
            }))
        });
    }

    fn apply_watch_result(&self, result: Result<watcher::Event<Node>, watcher::Error>) {
        let error_changed = match result {
            Ok(event) => {
                // The start of a list is not a success yet.
                let is_start = matches!(event, watcher::Event::Init);
                self.apply_watch_event(event);
                !is_start && self.is_ready() && self.watch_error.lock().take().is_some()
            }
            Err(error) => {
                let error = describe_watch_error(&error);
                tracing::warn!(cluster = self.cluster, kind = "Node", error, "Watch failed");
                self.watch_error.lock().replace(error).is_none()
            }
        };
        if error_changed {
            self.notify(&AffectedNodes::All);
        }
    }

    fn notify(&self, affected: &AffectedNodes) {
        for subscribers in self.subscribers.lock().iter() {
            subscribers.lock().notify(affected, &self.queue);
        }
    }
}

/// Drops fields that are never read. Kubelets update their Nodes every few minutes; without these fields, most updates change
/// nothing and cause no reconcile.
fn trim(node: &mut Node) {
    let retain_own = |entries: Option<BTreeMap<String, String>>| {
        entries.map(|entries| entries.into_iter().filter(|(key, _)| key.starts_with(keys::GROUP)).collect())
    };
    let metadata = std::mem::take(&mut node.metadata);
    node.metadata = ObjectMeta {
        annotations: retain_own(metadata.annotations),
        labels: retain_own(metadata.labels),
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    node.spec = node.spec.take().map(|spec| NodeSpec {
        provider_id: spec.provider_id,
        unschedulable: spec.unschedulable,
        taints: spec.taints,
        ..NodeSpec::default()
    });
    node.status = node.status.take().map(|status| {
        let mut ready = status.conditions.unwrap_or_default();
        ready.retain(|condition| condition.type_ == "Ready");
        for condition in &mut ready {
            (condition.last_heartbeat_time, condition.last_transition_time) = (None, None);
            (condition.message, condition.reason) = (None, None);
        }
        NodeStatus { conditions: Some(ready), ..NodeStatus::default() }
    });
}
/// Whether the agent requests the machine. Only the literal value counts.
pub(crate) fn has_reclaim_request(node: &Node) -> bool {
    node.annotations().get(keys::RECLAIM_REQUESTED_ANNOTATION).is_some_and(|it| it == keys::RECLAIM_REQUESTED)
}
