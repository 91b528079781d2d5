//! What is known of the Nodes of one cluster.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use fivespot_api::keys;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::AbortHandle;

use super::Means;
use super::orders::{Board, Concerns, Posted};
use crate::cache::{Cache, Heard, is_the_same};
use crate::lock::lock;
use crate::pauses::Pauses;
use crate::queue::{Key, Queue};

/// The Nodes of one cluster, and the client that reaches them.
pub(crate) struct Nodes {
    pub(crate) client: Client,
    cache: Cache<Node>,
    /// The watch of this cluster, if it is kept here; it ends with the last who uses it.
    watch: Mutex<Option<AbortHandle>>,
    /// Why nothing is heard of the Nodes, since the watch last failed.
    trouble: Mutex<Option<String>>,
    /// What the agents of this cluster are told, once somebody has asked, and the watch of it.
    board: OnceLock<(Arc<Board>, AbortHandle)>,
    /// Whoever is to be called when a Node changes, by its name.
    watched: Mutex<Vec<Watched>>,
}

/// Objects that are to be called when a Node changes.
pub(crate) type Watched = Arc<Mutex<Watchers>>;

/// Who is to be called about which Node.
#[derive(Default)]
pub(crate) struct Watchers {
    by_node: HashMap<String, HashSet<Key>>,
    by_key: HashMap<Key, String>,
}

impl Watchers {
    /// An object is to be called about this Node, and about no other.
    pub(crate) fn add(&mut self, key: &Key, node: &str) {
        if self.by_key.get(key).is_some_and(|it| it == node) {
            return;
        }
        self.remove(key);
        self.by_key.insert(key.clone(), node.to_owned());
        self.by_node.entry(node.to_owned()).or_default().insert(key.clone());
    }

    /// An object is not to be called any more.
    pub(crate) fn remove(&mut self, key: &Key) {
        let Some(node) = self.by_key.remove(key) else { return };
        if let Some(keys) = self.by_node.get_mut(&node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Calls those who are concerned with a Node, or everybody.
    pub(crate) fn call(&self, node: Option<&str>, queue: &Queue) {
        match node {
            Some(node) => self.by_node.get(node).into_iter().flatten().cloned().for_each(|key| queue.push(key)),
            None => self.by_key.keys().cloned().for_each(|key| queue.push(key)),
        }
    }
}

impl Nodes {
    pub(crate) fn new(client: Client) -> Self {
        Nodes {
            client,
            cache: Cache::that_tells_again(()),
            watch: Mutex::default(),
            trouble: Mutex::default(),
            board: OnceLock::new(),
            watched: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.cache.get_global(name)
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    /// Why nothing is heard of the Nodes, if that is so.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// Whoever is in `watched` is called when a Node of theirs changes.
    pub(crate) fn call(&self, watched: &Watched) {
        lock(&self.watched).push(Arc::clone(watched));
    }

    /// Calls nobody any more who is in `watched`.
    pub(crate) fn call_no_more(&self, watched: &Watched) {
        lock(&self.watched).retain(|it| !Arc::ptr_eq(it, watched));
    }

    pub(crate) fn saw(&self, mut node: Node) {
        trim(&mut node);
        self.cache.saw(node);
    }

    pub(crate) fn wrote(&self, mut node: Node) {
        trim(&mut node);
        self.cache.wrote(node);
    }

    /// What the agents of this cluster are told. The first who asks has it watched.
    pub(super) fn board(self: &Arc<Self>, means: &Means) -> &Board {
        let (board, _) = self.board.get_or_init(|| {
            let board = Arc::new(Board::new(Arc::clone(&means.agent_namespace)));
            let mut stream = Box::pin(board.stream(self.client.clone()));
            let (heard, nodes, queue) = (Arc::clone(&board), Arc::downgrade(self), Arc::clone(&means.queue));
            let task = tokio::spawn(async move {
                while let Some(event) = stream.next().await {
                    let Some(nodes) = nodes.upgrade() else { return };
                    match heard.hear(event) {
                        Concerns::Nobody => {}
                        Concerns::Node(node) => nodes.call_about(Some(&node), &queue),
                        Concerns::All => nodes.call_about(None, &queue),
                    }
                }
            });
            (board, task.abort_handle())
        });
        board
    }

    /// What the agent on a Node is told, as far as somebody has asked before.
    pub(crate) fn posted(&self, node: &str) -> Posted {
        self.board.get().map_or(Posted::Sought, |(board, _)| board.of(node))
    }

    pub(crate) fn wrote_orders(&self, orders: ConfigMap) {
        if let Some((board, _)) = self.board.get() {
            board.wrote(orders);
        }
    }

    pub(crate) fn deleted_orders(&self, node: &str) {
        if let Some((board, _)) = self.board.get() {
            board.deleted(node);
        }
    }

    /// What the API server tells of Nodes.
    pub(crate) fn stream(&self) -> impl Stream<Item = Result<watcher::Event<Node>, watcher::Error>> + Send + 'static {
        watcher(Api::all(self.client.clone()), watcher::Config::default())
    }

    /// Takes what the API server tells, and calls those whom it concerns.
    pub(crate) fn hear(&self, event: watcher::Event<Node>, queue: &Queue) {
        let name = match self.cache.hear(event.modify(trim)) {
            Heard::Nothing => return,
            Heard::Changed { before: Some(before), after } if is_the_same(before.as_ref(), &after) => return,
            Heard::Changed { after, .. } => Some(after.name_any()),
            Heard::Gone { object, .. } => Some(object.name_any()),
            Heard::All => None,
        };
        self.call_about(name.as_deref(), queue);
    }

    /// Calls those who are concerned with a Node, or everybody.
    fn call_about(&self, node: Option<&str>, queue: &Queue) {
        for watched in lock(&self.watched).iter() {
            lock(watched).call(node, queue);
        }
    }

    /// Keeps the watch going for as long as somebody uses it.
    pub(crate) fn keep_watching(self: &Arc<Self>, queue: Arc<Queue>) {
        let weak = Arc::downgrade(self);
        let mut stream = Box::pin(self.stream().backoff(Pauses::default()));
        let task = tokio::spawn(async move {
            while let Some(event) = stream.next().await {
                let Some(nodes) = weak.upgrade() else { return };
                match event {
                    Ok(event) => {
                        nodes.hear(event, &queue);
                        // The start of a list is no answer yet.
                        if nodes.is_synced() && lock(&nodes.trouble).take().is_some() {
                            nodes.call_about(None, &queue);
                        }
                    }
                    Err(error) => {
                        let why = fivespot_cli_support::chain(&error);
                        tracing::warn!(error = why, "the watch of Nodes failed");
                        if lock(&nodes.trouble).replace(why).is_none() {
                            nodes.call_about(None, &queue);
                        }
                    }
                }
            }
        });
        *lock(&self.watch) = Some(task.abort_handle());
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Some(watch) = lock(&self.watch).take() {
            watch.abort();
        }
        if let Some((_, watch)) = self.board.get() {
            watch.abort();
        }
    }
}

/// Drops what nobody reads. A kubelet writes into its Node every few minutes, and almost all of that goes here.
fn trim(node: &mut Node) {
    let ours = |it: Option<std::collections::BTreeMap<String, String>>| {
        it.map(|it| it.into_iter().filter(|(key, _)| key.starts_with(keys::GROUP)).collect())
    };
    let metadata = std::mem::take(&mut node.metadata);
    node.metadata = ObjectMeta {
        annotations: ours(metadata.annotations),
        labels: ours(metadata.labels),
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
        ready.retain(|it| it.type_ == "Ready");
        for condition in &mut ready {
            (condition.last_heartbeat_time, condition.last_transition_time) = (None, None);
            (condition.message, condition.reason) = (None, None);
        }
        NodeStatus { conditions: Some(ready), ..NodeStatus::default() }
    });
}
