//! Workload clusters: the clusters whose Nodes the Machines become.
//!
//! A Cluster is connected when the first of its Machines has a Node, and disconnected with the last. The connection uses the
//! kubeconfig that Cluster API stores for the Cluster; without one, the Nodes are in the management cluster, unless
//! `--require-kubeconfig` forbids that. Failures are reported, and retried with a fresh read of the Secret.
//!
//! Nothing here blocks a reconcile: it gets what is known now, and its object is queued again when that changes.

mod agent_config;
mod bounded;
mod connection;
mod known_nodes;
mod kubeconfig;
mod list_watch;
mod nodes;
mod pod_permits;
mod requests;
mod subscribers;
mod truncated_json;
mod waits;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fivespot_planner::retry::FailureClass;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Client;
use kube::api::PatchParams;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::Instant;

use crate::runtime::permits::Urgency;
use crate::runtime::rate_limit::OncePer;
use crate::runtime::request::{Operation, Origin, RequestError, send_to};
use crate::runtime::workqueue::{Key, WorkQueue};

pub(crate) use agent_config::{AgentConfigState, config_text, has_agent_label};
use connection::{ClusterConnection, ConnectionState};
pub(crate) use connection::{ClusterKey, ConnectionDeps};
pub(crate) use list_watch::PAGE_SIZE;
use nodes::NodeCache;
pub(crate) use nodes::has_reclaim_request;
pub(crate) use pod_permits::PodPermit;
pub(crate) use requests::ConfigMaps;
pub(crate) use truncated_json::complete;
pub(crate) use waits::RunningReconcile;
use waits::{RunningReconciles, Waits};
pub(crate) use wire::{Page, WorkloadPod};

/// How often a kind of failure of one workload cluster is logged: its server decides how often it fails, and with what text.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_mins(1);

pub(crate) type LogLimit = OncePer<String>;

/// All workload clusters in use.
pub(crate) struct WorkloadClusters {
    deps: ConnectionDeps,
    /// The Nodes of the management cluster, shared by all Clusters without a kubeconfig.
    management_nodes: Arc<Mutex<Weak<NodeCache>>>,
    state: Mutex<State>,
    running: RunningReconciles,
}

#[derive(Default)]
struct State {
    connections: HashMap<ClusterKey, Arc<ClusterConnection>>,
    /// The Cluster of each object's Node.
    cluster_of: HashMap<Key, ClusterKey>,
}

/// What is known of a Node.
pub(crate) enum NodeLookup {
    /// The connection to its cluster is not established yet.
    Connecting,
    /// Its cluster cannot be accessed; the text says why.
    Unreachable(String),
    Absent,
    /// It is not in the management cluster, and the Cluster has no kubeconfig that says where else it is.
    NoKubeconfig {
        secret: Key,
    },
    Found(Arc<Node>),
}

impl WorkloadClusters {
    pub(crate) fn new(deps: ConnectionDeps) -> Self {
        WorkloadClusters {
            deps,
            management_nodes: Arc::default(),
            state: Mutex::default(),
            running: RunningReconciles::default(),
        }
    }

    /// A reconcile starts. Its requests to the workload cluster have a common deadline.
    pub(crate) fn start_reconcile(&self, key: &Key, urgency: Urgency) -> RunningReconcile<'_> {
        self.running.start(key, urgency)
    }

    /// The object that is being reconciled has become urgent: what it waits for now is not.
    pub(crate) fn supersede_reconcile(&self, key: &Key) {
        self.running.supersede(key);
    }

    /// Looks up the Node of an object's Machine. The object is queued when the result changes.
    pub(crate) fn node(&self, key: &Key, cluster: &ClusterKey, name: &str) -> NodeLookup {
        let connection = self.connection(key, cluster, name);
        match connection.state() {
            ConnectionState::Connecting => NodeLookup::Connecting,
            ConnectionState::Unreachable(cause) => NodeLookup::Unreachable(cause),
            // Only the management cluster is connected before it is synced. Once it is, its last known state counts.
            ConnectionState::Connected(nodes) if !nodes.is_ready() => {
                nodes.watch_error().map_or(NodeLookup::Connecting, |error| {
                    NodeLookup::Unreachable(format!("cannot watch the Nodes of the management cluster: {error}"))
                })
            }
            ConnectionState::Connected(nodes) if !nodes.is_known(name) => {
                connection.read_unknown_nodes();
                NodeLookup::Connecting
            }
            ConnectionState::Connected(nodes) => match nodes.get(name) {
                Some(node) => NodeLookup::Found(node),
                None if let Some((cause, is_due)) = nodes.unreadable(name) => {
                    if is_due && nodes.mark_outdated(name) {
                        connection.read_unknown_nodes();
                    }
                    NodeLookup::Unreachable(cause)
                }
                // A Secret may have been created since, and the Node may be in another cluster.
                None if connection.recheck_kubeconfig() => NodeLookup::Connecting,
                None if nodes.is_management() => NodeLookup::NoKubeconfig { secret: connection.secret() },
                None => NodeLookup::Absent,
            },
        }
    }

    /// The namespace of the reclaim agent, the same in every cluster.
    pub(crate) fn agent_namespace(&self) -> &str {
        &self.deps.agent_namespace
    }

    /// A client for the cluster of an object's Node; `None` while it is not connected.
    pub(crate) fn client_for(&self, key: &Key) -> Option<WorkloadClient> {
        let state = self.state.lock();
        let connection = state.connections.get(state.cluster_of.get(key)?)?;
        match connection.state() {
            ConnectionState::Connected(nodes) => Some(WorkloadClient {
                nodes,
                connection: Arc::clone(connection),
                queue: Arc::clone(&self.deps.queue),
                waits: self.running.waits(key),
                key: key.clone(),
            }),
            ConnectionState::Connecting | ConnectionState::Unreachable(_) => None,
        }
    }

    /// Whether to log something about an object that the server of its workload cluster can cause as often as it likes.
    pub(crate) fn allows_log(&self, key: &Key, what: &str) -> bool {
        self.deps.log_limit.allows(&format!("{key}: {what}"))
    }

    /// Whether the Node of an object's Machine is looked for in the management cluster.
    pub(crate) fn is_in_management_cluster(&self, key: &Key) -> bool {
        self.client_for(key).is_some_and(|client| client.nodes.is_management())
    }

    /// The configuration of the agent on the Node of an object's Machine. The object is queued when it changes.
    pub(crate) fn agent_config(&self, key: &Key, node: &str) -> AgentConfigState {
        let client = self.client_for(key);
        client.map_or(AgentConfigState::Connecting, |client| client.nodes.watch_agent_config().get(node))
    }

    /// Whether the kubelet of a Node has stopped reporting its status.
    pub(crate) fn kubelet_is_silent(&self, key: &Key, name: &str) -> bool {
        let node = self.client_for(key).and_then(|client| client.nodes.get(name));
        let conditions = node.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    }

    /// Objects with a Node, and connections.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.cluster_of.len(), state.connections.len())
    }

    /// An object has no Node any more. Its cluster is disconnected if it was the last.
    pub(crate) fn release(&self, key: &Key) {
        let mut state = self.state.lock();
        if let Some(cluster) = state.cluster_of.remove(key) {
            state.unsubscribe(key, &cluster);
        }
    }

    /// The connection to the Cluster of an object's Node. Subscribing and removing the last subscriber happen under the
    /// same lock, so that no object is left with a connection that has been closed.
    fn connection(&self, key: &Key, cluster: &ClusterKey, node: &str) -> Arc<ClusterConnection> {
        let mut state = self.state.lock();
        let before = state.cluster_of.insert(key.clone(), cluster.clone());
        if let Some(before) = before.filter(|before| before != cluster) {
            state.unsubscribe(key, &before);
        }
        let start = || ClusterConnection::start(self.deps.clone(), cluster.clone(), Arc::clone(&self.management_nodes));
        let connection = Arc::clone(state.connections.entry(cluster.clone()).or_insert_with(start));
        connection.subscribe(node, key);
        connection
    }
}

impl State {
    fn unsubscribe(&mut self, key: &Key, cluster: &ClusterKey) {
        if self.connections.get(cluster).is_some_and(|connection| connection.unsubscribe(key)) {
            self.connections.remove(cluster);
        }
    }
}

/// Access to the Nodes and pods of a connected workload cluster.
pub(crate) struct WorkloadClient {
    nodes: Arc<NodeCache>,
    connection: Arc<ClusterConnection>,
    queue: Arc<WorkQueue>,
    waits: Waits,
    /// The object that is being reconciled.
    key: Key,
}

impl WorkloadClient {
    /// Reads a Node; `None` if it does not exist.
    pub(crate) async fn get_node(&self, name: &str) -> Result<Option<Node>, kube::Error> {
        requests::get_node(&self.nodes.client, name).await
    }

    pub(crate) async fn patch_node(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Value,
    ) -> Result<Node, kube::Error> {
        requests::patch_node(&self.nodes.client, name, params, patch).await
    }

    pub(crate) fn config_maps(&self, namespace: &str) -> ConfigMaps {
        ConfigMaps::new(self.client(), namespace)
    }

    /// Sends a request whose response has nothing of interest.
    pub(crate) async fn request(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), kube::Error> {
        self.client().request::<IgnoredAny>(request.map_err(kube::Error::BuildRequest)?).await.map(|_| ())
    }

    pub(crate) fn client(&self) -> Client {
        self.nodes.client.clone()
    }

    pub(crate) fn cached_node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name)
    }

    /// The kubeconfig Secret of the Cluster, if it does not exist and this is the management cluster instead.
    pub(crate) fn missing_kubeconfig(&self) -> Option<Key> {
        self.nodes.is_management().then(|| self.connection.secret())
    }

    /// The configuration of the agent on a Node. `Connecting` until [`WorkloadClusters::agent_config`] started the watch.
    pub(crate) fn agent_config(&self, node: &str) -> AgentConfigState {
        self.nodes.agent_config().map_or(AgentConfigState::Connecting, |configs| configs.get(node))
    }

    pub(crate) fn apply_agent_config_write(&self, config: ConfigMap) {
        if let Some(configs) = self.nodes.agent_config() {
            configs.apply_write_response(config);
        }
    }

    pub(crate) fn mark_agent_config_deleted(&self, node: &str) {
        if let Some(configs) = self.nodes.agent_config() {
            configs.mark_deleted(node);
        }
    }

    pub(crate) fn apply_read(&self, node: Node) {
        self.nodes.apply_read(node);
    }

    pub(crate) fn apply_write_response(&self, node: Node) {
        self.nodes.apply_write_response(node);
    }

    /// Waits for a permit to send a request about a pod, at most until then.
    pub(crate) async fn pod_permit(
        &self,
        namespace: &str,
        until: Instant,
        operation: &Operation,
    ) -> Result<PodPermit, RequestError> {
        let _waiting = self.queue.wait_elsewhere(&self.key);
        self.waits.wait_until(until, operation, self.nodes.pod_permits.acquire(namespace)).await
    }

    /// Sends a request. If there is no response, the connection is given up and established again.
    pub(crate) async fn send<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, RequestError> {
        let result = self.send_for_pod(operation, request).await;
        if result.as_ref().is_err_and(RequestError::is_connection_error) {
            self.connection.suspect(&self.nodes);
        }
        result
    }

    /// Sends a request about a pod. If there is no response, the connection is kept: an admission webhook of the pod's
    /// namespace may hang.
    pub(crate) async fn send_for_pod<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, RequestError> {
        // A cluster that does not respond must not keep objects of other clusters waiting.
        let _waiting = self.queue.wait_elsewhere(&self.key);
        let origin = self.nodes.origin;
        let send = |limit, operation| send_to(origin, limit, operation, request);
        // Boxed like the request itself: a reconcile has many of these.
        let result = Box::pin(self.waits.wait(operation, send)).await;
        if let Err(error) = &result {
            // Conflicts and blocked evictions are part of normal operation.
            let is_expected = matches!(error.class(), FailureClass::Conflict) || error.is_too_many_requests();
            if origin == Origin::Workload && !is_expected {
                self.connection.log_failure(error);
            }
        }
        result
    }
}
