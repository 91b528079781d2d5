//! The connection to one workload cluster: establishing it, keeping it, and noticing when it is lost.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::LogLimit;
use super::kubeconfig::{self, KubeconfigError};
use super::list_watch::{EventStream, WatchError};
use super::nodes::{NodeCache, NodeCacheDeps};
use super::subscribers::{AffectedNodes, SharedSubscribers};
use crate::runtime::backoff::Backoff;
use crate::runtime::client::workload_client;
use crate::runtime::error_class::ErrorClass;
use crate::runtime::metrics::Metrics;
use crate::runtime::panics::isolate;
use crate::runtime::request::{RequestError, describe, truncate};
use crate::runtime::response_limits::LargeResponses;
use crate::runtime::workqueue::{Key, WorkQueue};

/// How long a cluster may take to send its first Node, and then each further one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a cluster may take to send all of them.
const LIST_TIMEOUT: Duration = Duration::from_mins(5);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// How often the Secret is read again because a Node is not in the cluster where it was expected.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Namespace and name of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct ConnectionDeps {
    /// The management cluster, which has the kubeconfig Secrets.
    pub(crate) management: Client,
    /// Whether a Cluster without a kubeconfig Secret is an error.
    pub(crate) require_kubeconfig: bool,
    /// The namespace of the reclaim agent, the same in every cluster.
    pub(crate) agent_namespace: Arc<str>,
    pub(crate) queue: Arc<WorkQueue>,
    pub(crate) metrics: Arc<Metrics>,
    /// Shared by all connections.
    pub(crate) large_responses: Arc<LargeResponses>,
    pub(crate) log_limit: Arc<LogLimit>,
}

#[derive(Clone)]
pub(super) enum ConnectionState {
    Connecting,
    /// The cluster cannot be accessed; the text says why.
    Unreachable(String),
    Connected(Arc<NodeCache>),
}

/// Why a connection cannot be established. As a text it is suitable for the status.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot create a client for server {server}: {}", ErrorClass::of(source))]
    Client {
        server: String,
        #[source]
        source: kube::Error,
    },
    #[error("server {server} did not respond within {} s", limit.as_secs())]
    Timeout { server: String, limit: Duration },
    #[error("server {server}: {source}")]
    Watch {
        server: String,
        #[source]
        source: WatchError,
    },
    #[error("server {server} closed the watch of its Nodes")]
    WatchClosed { server: String },
    #[error("internal error; the log of the controller has the cause")]
    Panicked,
}

impl ConnectError {
    /// With what the server sent, for the log.
    fn text(&self) -> String {
        match self {
            ConnectError::Client { server, source } => {
                format!("cannot create a client for server {server}: {}", describe(source))
            }
            ConnectError::Watch { server, source } => format!("server {server}: {}", source.text()),
            ConnectError::Kubeconfig(_)
            | ConnectError::Timeout { .. }
            | ConnectError::WatchClosed { .. }
            | ConnectError::Panicked => self.to_string(),
        }
    }
}

/// The connection to one workload cluster; it is closed when dropped.
pub(super) struct ClusterConnection {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    cluster: ClusterKey,
    deps: ConnectionDeps,
    state: Mutex<ConnectionState>,
    subscribers: SharedSubscribers,
    /// A request got no response: the connection may be lost.
    suspected: Notify,
    /// A Node is not in this cluster: the Secret may have changed.
    node_missing: Notify,
    /// An object has subscribed to a Node whose state is not known.
    node_unknown: Notify,
    kubeconfig_read_at: Mutex<Instant>,
    had_kubeconfig: AtomicBool,
    management_nodes: Arc<Mutex<Weak<NodeCache>>>,
}

impl ClusterConnection {
    pub(super) fn start(
        deps: ConnectionDeps,
        cluster: ClusterKey,
        management_nodes: Arc<Mutex<Weak<NodeCache>>>,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared::new(deps, cluster, management_nodes));
        let task = tokio::spawn(Arc::clone(&shared).stay_connected()).abort_handle();
        Arc::new(ClusterConnection { shared, task })
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.shared.state.lock().clone()
    }

    /// The kubeconfig Secret of the Cluster.
    pub(super) fn secret(&self) -> Key {
        self.shared.secret()
    }

    /// Queues an object whenever this Node or the state of the connection changes.
    pub(super) fn subscribe(&self, node: &str, key: &Key) {
        self.shared.subscribers.lock().add(key, node);
    }

    /// Returns whether the object was the last subscriber.
    pub(super) fn unsubscribe(&self, key: &Key) -> bool {
        let mut subscribers = self.shared.subscribers.lock();
        subscribers.remove(key);
        subscribers.is_empty()
    }

    /// Requests a fresh read of the Secret because a Node is missing. Returns false if it was read just now.
    pub(super) fn recheck_kubeconfig(&self) -> bool {
        let mut read_at = self.shared.kubeconfig_read_at.lock();
        if read_at.elapsed() < RECHECK_INTERVAL {
            return false;
        }
        *read_at = Instant::now();
        self.shared.node_missing.notify_one();
        true
    }

    /// Requests a read of the Nodes whose state is not known. Their subscribers are queued afterwards.
    pub(super) fn read_unknown_nodes(&self) {
        self.shared.node_unknown.notify_one();
    }

    /// Logs a failed request, with what the server sent, but not often: a tenant decides how often and what.
    pub(super) fn log_failure(&self, error: &RequestError) {
        let cluster = &self.shared.cluster;
        if self.shared.deps.log_limit.allows(&format!("requests to {cluster}")) {
            tracing::warn!(%cluster, error = error.text(), "Request to workload cluster failed");
        }
    }

    /// Gives the connection up because a request got no response, unless the request was sent over an earlier connection.
    pub(super) fn suspect(&self, nodes: &Arc<NodeCache>) {
        if matches!(&*self.shared.state.lock(), ConnectionState::Connected(current) if Arc::ptr_eq(current, nodes)) {
            self.shared.suspected.notify_one();
        }
    }
}

impl Drop for ClusterConnection {
    fn drop(&mut self) {
        self.task.abort();
        if let ConnectionState::Connected(nodes) = &*self.shared.state.lock() {
            nodes.unsubscribe(&self.shared.subscribers);
        }
    }
}

impl Shared {
    fn new(deps: ConnectionDeps, cluster: ClusterKey, management_nodes: Arc<Mutex<Weak<NodeCache>>>) -> Self {
        Shared {
            cluster,
            deps,
            state: Mutex::new(ConnectionState::Connecting),
            subscribers: SharedSubscribers::default(),
            suspected: Notify::new(),
            node_missing: Notify::new(),
            node_unknown: Notify::new(),
            kubeconfig_read_at: Mutex::new(Instant::now()),
            had_kubeconfig: AtomicBool::new(false),
            management_nodes,
        }
    }

    /// Connects and reconnects until the task is aborted.
    async fn stay_connected(self: Arc<Self>) {
        let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
        loop {
            let result = isolate(self.connect_and_follow()).await.unwrap_or(Err(ConnectError::Panicked));
            let delay = backoff.delay();
            if let Err(error) = result {
                if self.deps.log_limit.allows(&format!("connection to {}", self.cluster)) {
                    let retry_in = format_args!("{:.1}s", delay.as_secs_f64());
                    let (cluster, error) = (&self.cluster, error.text());
                    tracing::error!(%cluster, error, %retry_in, "Cannot reach workload cluster");
                }
                self.set_state(ConnectionState::Unreachable(error.to_string()));
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns when the connection is lost, or could not be established.
    async fn connect_and_follow(&self) -> Result<(), ConnectError> {
        match self.node_source().await? {
            NodeSource::ManagementCluster => {
                self.set_state(ConnectionState::Connected(self.management_nodes()));
                self.node_missing.notified().await;
            }
            NodeSource::WorkloadCluster { kubeconfig } => {
                let connection = self.connect(&kubeconfig).await?;
                self.follow(connection, &kubeconfig).await?;
            }
        }
        Ok(())
    }

    async fn node_source(&self) -> Result<NodeSource, KubeconfigError> {
        *self.kubeconfig_read_at.lock() = Instant::now();
        let secret = self.secret();
        if let Some(kubeconfig) = kubeconfig::read(&self.deps.management, &secret).await? {
            self.had_kubeconfig.store(true, Ordering::Release);
            return Ok(NodeSource::WorkloadCluster { kubeconfig });
        }
        if self.deps.require_kubeconfig {
            return Err(KubeconfigError::Required { secret });
        }
        // A Secret that existed before is probably being replaced: the Nodes are not in the management cluster.
        if self.had_kubeconfig.load(Ordering::Acquire) {
            return Err(KubeconfigError::Deleted { secret });
        }
        Ok(NodeSource::ManagementCluster)
    }

    fn secret(&self) -> Key {
        kubeconfig::secret_of(&self.cluster.namespace, &self.cluster.name)
    }

    /// The Nodes of the management cluster, which are watched once for all Clusters.
    fn management_nodes(&self) -> Arc<NodeCache> {
        let mut management_nodes = self.management_nodes.lock();
        management_nodes.upgrade().unwrap_or_else(|| {
            let management = self.deps.management.clone();
            let nodes = Arc::new(NodeCache::of_management_cluster(management, self.node_cache_deps()));
            nodes.start_watch();
            *management_nodes = Arc::downgrade(&nodes);
            nodes
        })
    }

    fn node_cache(&self, client: Client) -> Arc<NodeCache> {
        let (cluster, subscribers) = (self.cluster.to_string(), Arc::clone(&self.subscribers));
        Arc::new(NodeCache::of_workload_cluster(client, cluster, subscribers, self.node_cache_deps()))
    }

    fn node_cache_deps(&self) -> NodeCacheDeps {
        NodeCacheDeps {
            agent_namespace: Arc::clone(&self.deps.agent_namespace),
            queue: Arc::clone(&self.deps.queue),
            log_limit: Arc::clone(&self.deps.log_limit),
        }
    }

    async fn connect(&self, kubeconfig: &[u8]) -> Result<Connection, ConnectError> {
        let config = kubeconfig::client_config(kubeconfig).await;
        let config = config.map_err(|source| KubeconfigError::Invalid { secret: self.secret(), source })?;
        let server = truncate(config.cluster_url.to_string().trim_end_matches('/'));
        let limits = self.deps.large_responses.limits(&self.cluster.namespace);
        let client = workload_client(config, &self.deps.metrics, &limits)
            .map_err(|source| ConnectError::Client { server: server.clone(), source })?;
        let nodes = self.node_cache(client);
        let mut connection = Connection { server: server.clone(), stream: nodes.watch(), nodes };
        let synced = tokio::time::timeout(LIST_TIMEOUT, async {
            connection.sync().await?;
            let read = connection.nodes.read_unknown().await;
            read.map_err(|error| ConnectError::Watch { server: server.clone(), source: error.into() })
        });
        synced.await.map_err(|_| ConnectError::Timeout { server: server.clone(), limit: LIST_TIMEOUT })??;
        Ok(connection)
    }

    /// Applies the events of the watch until the connection is lost. Fails if the server sends what it must not.
    async fn follow(&self, connection: Connection, kubeconfig: &[u8]) -> Result<(), ConnectError> {
        let Connection { nodes, mut stream, server } = connection;
        // A suspicion from before was about an earlier connection.
        let _ = self.suspected.notified().now_or_never();
        self.set_state(ConnectionState::Connected(Arc::clone(&nodes)));
        let mut agent_config = None;
        let reason = loop {
            tokio::select! {
                event = stream.next() => match event {
                    Some(Ok(event)) => {
                        let is_listed = matches!(event, Event::InitDone);
                        nodes.apply_watch_event(event);
                        if is_listed {
                            self.node_unknown.notify_one();
                        }
                    }
                    Some(Err(WatchError::Skipped { name, .. })) => {
                        if nodes.mark_outdated(&name) {
                            self.node_unknown.notify_one();
                        }
                    }
                    Some(Err(source)) if source.is_violation() => return Err(ConnectError::Watch { server, source }),
                    Some(Err(error)) => break error.to_string(),
                    None => break "server closed the watch".to_owned(),
                },
                event = next_of(&mut agent_config) => nodes.apply_agent_config(event),
                () = nodes.agent_config_requested(), if agent_config.is_none() => {
                    agent_config = Some(nodes.agent_config_events());
                }
                () = self.node_unknown.notified(), if !nodes.is_listing() => {
                    if let Err(error) = nodes.read_unknown().await {
                        break error.to_string();
                    }
                }
                () = self.suspected.notified() => break "no response to a request".to_owned(),
                () = self.node_missing.notified() => {
                    if !self.is_current(kubeconfig).await {
                        break "kubeconfig changed".to_owned();
                    }
                    // Queues the objects whose lookup returned `Connecting` while the Secret was read.
                    self.set_state(ConnectionState::Connected(Arc::clone(&nodes)));
                },
            }
        };
        if self.deps.log_limit.allows(&format!("loss of {}", self.cluster)) {
            tracing::info!(cluster = %self.cluster, reason, "Lost connection to workload cluster");
        }
        // From here on the cached Nodes are outdated.
        self.set_state(ConnectionState::Connecting);
        Ok(())
    }

    /// Whether the Secret still contains this kubeconfig, as far as can be determined: a connection that works is not given
    /// up because the management cluster does not respond.
    async fn is_current(&self, kubeconfig: &[u8]) -> bool {
        match self.node_source().await {
            Ok(NodeSource::WorkloadCluster { kubeconfig: current }) => current == kubeconfig,
            Err(KubeconfigError::Unreadable(_)) => true,
            Ok(NodeSource::ManagementCluster)
            | Err(
                KubeconfigError::Forbidden { .. }
                | KubeconfigError::Required { .. }
                | KubeconfigError::Deleted { .. }
                | KubeconfigError::MissingKey { .. }
                | KubeconfigError::Invalid { .. },
            ) => false,
        }
    }

    /// Changes the state and queues all subscribers.
    fn set_state(&self, next: ConnectionState) {
        let mut state = self.state.lock();
        if let ConnectionState::Connected(nodes) = &*state {
            nodes.unsubscribe(&self.subscribers);
        }
        if let ConnectionState::Connected(nodes) = &next {
            nodes.subscribe(&self.subscribers);
            if !matches!(&*state, ConnectionState::Connected(_))
                && self.deps.log_limit.allows(&format!("connection of {}", self.cluster))
            {
                tracing::info!(cluster = %self.cluster, "Connected to workload cluster");
            }
        }
        *state = next;
        drop(state);
        self.subscribers.lock().notify(&AffectedNodes::All, Duration::ZERO, &self.deps.queue);
    }
}

/// Where the Nodes of a Cluster are.
enum NodeSource {
    ManagementCluster,
    WorkloadCluster { kubeconfig: Vec<u8> },
}

/// An open watch of the Nodes of a workload cluster.
struct Connection {
    server: String,
    nodes: Arc<NodeCache>,
    stream: EventStream<Node>,
}

/// The next event of a watch that never ends, once it has been started.
async fn next_of<T>(events: &mut Option<BoxStream<'static, T>>) -> T {
    match events {
        Some(events) => match events.next().await {
            Some(event) => event,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Connection {
    /// Waits until all Nodes are listed. The list may be long; only the wait for each next Node is limited.
    async fn sync(&mut self) -> Result<(), ConnectError> {
        while !self.nodes.is_ready() {
            let next = tokio::time::timeout(RESPONSE_TIMEOUT, self.stream.next()).await;
            let server = self.server.clone();
            match next {
                Ok(Some(Ok(event))) => self.nodes.apply_watch_event(event),
                Ok(Some(Err(source))) => return Err(ConnectError::Watch { server, source }),
                Ok(None) => return Err(ConnectError::WatchClosed { server }),
                Err(_) => return Err(ConnectError::Timeout { server, limit: RESPONSE_TIMEOUT }),
            }
        }
        Ok(())
    }
}
