//! The configuration of the reclaim agents of one cluster: a ConfigMap per Node, owned by the Node, so that the cluster's
//! garbage collection removes it with the Node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fivespot_api::keys;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::Event;
use kube::{Client, Resource as _, ResourceExt};
use parking_lot::Mutex;

use super::LogLimit;
use super::list_watch::{EventStream, ListWatch, Objects, WatchError, list_watch, map_event};
use super::nodes::NodeCacheDeps;
use super::subscribers::AffectedNodes;
use super::wire::WorkloadConfigMap;
use crate::runtime::backoff::Backoff;
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::request::Origin;

/// What is known of the configuration of one agent.
pub(crate) enum AgentConfigState {
    /// The first list is not complete.
    Connecting,
    /// The configurations of the cluster cannot be listed; the text says why.
    Unreadable(String),
    Absent,
    Found(Arc<ConfigMap>),
}

/// The agent configurations of one cluster.
pub(super) struct AgentConfigCache {
    /// For log lines.
    cluster: String,
    namespace: Arc<str>,
    cache: Cache<ConfigMap>,
    is_listing: AtomicBool,
    /// The last error of the watch, until it succeeds.
    watch_error: Mutex<Option<String>>,
    log_limit: Arc<LogLimit>,
}

impl AgentConfigCache {
    pub(super) fn new(cluster: String, deps: &NodeCacheDeps) -> Self {
        AgentConfigCache {
            cluster,
            namespace: Arc::clone(&deps.agent_namespace),
            cache: Cache::new(()),
            is_listing: AtomicBool::new(false),
            watch_error: Mutex::default(),
            log_limit: Arc::clone(&deps.log_limit),
        }
    }

    /// Whether the first list is complete.
    pub(super) fn is_ready(&self) -> bool {
        self.cache.is_ready()
    }

    pub(super) fn is_listing(&self) -> bool {
        self.is_listing.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, node: &str) -> AgentConfigState {
        if !self.cache.is_ready() {
            return self.watch_error.lock().clone().map_or(AgentConfigState::Connecting, AgentConfigState::Unreadable);
        }
        self.cached(node).map_or(AgentConfigState::Absent, AgentConfigState::Found)
    }

    /// Applies a ConfigMap that was just created or updated.
    pub(super) fn apply_write_response(&self, config: ConfigMap) {
        self.cache.apply_read(config);
    }

    pub(super) fn mark_deleted(&self, node: &str) {
        if let Some(cached) = self.cached(node) {
            self.cache.mark_deleted(&cached);
        }
    }

    /// Watches every ConfigMap that this controller manages, with retries.
    pub(super) fn watch(client: Client, origin: Origin, namespace: &str) -> EventStream<ConfigMap> {
        let labels = Some(format!("{}={}", keys::RECLAIM_AGENT_LABEL, keys::RECLAIM_AGENT_ENABLED));
        let path = ConfigMap::url_path(&(), Some(namespace));
        let of = ListWatch { client, origin, kind: "ConfigMap", path, labels, objects: Objects::Listed };
        let events = list_watch::<WorkloadConfigMap>(of).map_ok(|event| map_event(event, |config| config.0));
        events.backoff(Backoff::watch()).boxed()
    }

    /// Applies an item of the watch and returns the Nodes whose configuration it concerns.
    pub(super) fn apply_watch_result(&self, result: Result<Event<ConfigMap>, WatchError>) -> AffectedNodes {
        self.is_listing.store(matches!(result, Ok(Event::Init | Event::InitApply(_))), Ordering::Release);
        let event = match result {
            Ok(event) => event,
            Err(error) => return self.record_watch_error(&error),
        };
        // The start of a list is not a success yet.
        let is_start = matches!(event, Event::Init);
        let event = self.cache.apply_watch_event(event);
        if !is_start && self.cache.is_ready() && self.watch_error.lock().take().is_some() {
            return AffectedNodes::All;
        }
        match event {
            CacheEvent::Unchanged => AffectedNodes::None,
            CacheEvent::Applied { after: config, .. } | CacheEvent::Deleted { object: config, .. } => node_of(&config),
            CacheEvent::Resynced => AffectedNodes::All,
        }
    }

    fn record_watch_error(&self, error: &WatchError) -> AffectedNodes {
        let before = self.watch_error.lock().replace(error.to_string());
        if self.log_limit.allows(&format!("agent configuration of {}", self.cluster)) {
            let (cluster, error) = (&self.cluster, error.text());
            tracing::warn!(cluster, namespace = %self.namespace, error, "Cannot watch agent configuration");
        }
        if before.is_none() { AffectedNodes::All } else { AffectedNodes::None }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cache.all().len()
    }

    fn cached(&self, node: &str) -> Option<Arc<ConfigMap>> {
        self.cache.get(&self.namespace, &keys::reclaim_config_map(node))
    }
}

fn node_of(config: &ConfigMap) -> AffectedNodes {
    configured_node(config).map_or(AffectedNodes::None, |node| AffectedNodes::One(node.to_owned()))
}

/// The Node whose agent a ConfigMap configures, by its name.
pub(super) fn configured_node(config: &ConfigMap) -> Option<&str> {
    config.metadata.name.as_deref()?.strip_prefix(&keys::reclaim_config_map(""))
}

/// Whether a Node has the label that lets the agent run on it, or a ConfigMap the same label that marks it as managed.
pub(crate) fn has_agent_label(object: &impl ResourceExt) -> bool {
    object.labels().get(keys::RECLAIM_AGENT_LABEL).is_some_and(|value| value == keys::RECLAIM_AGENT_ENABLED)
}

/// The configuration for the agent on exactly this Node; `None` if the ConfigMap is for another one, or contains more.
pub(crate) fn config_text<'a>(config: &'a ConfigMap, node: &Node) -> Option<&'a str> {
    let mut owners = config.owner_references().iter();
    let is_owned = owners.any(|owner| owner.kind == "Node" && Some(&owner.uid) == node.metadata.uid.as_ref());
    let data = config.data.as_ref().filter(|data| is_owned && data.len() == 1)?;
    data.get(keys::RECLAIM_CONFIG_KEY).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::LOG_INTERVAL;
    use super::*;
    use crate::runtime::request::{Operation, RequestError};
    use crate::runtime::workqueue::{Widths, WorkQueue};

    #[test]
    fn forbidden_watch_is_truncated_and_notifies_once() {
        let deps = NodeCacheDeps {
            agent_namespace: "5spot-system".into(),
            queue: Arc::new(WorkQueue::new(Widths { total: 1, lane: 1, namespace: 1 })),
            log_limit: Arc::new(LogLimit::new(LOG_INTERVAL)),
        };
        let configs = AgentConfigCache::new("team/edge".to_owned(), &deps);
        let forbidden = || {
            let status =
                kube::core::Status::failure(&format!("no\n{}", "!".repeat(1_000_000)), "Forbidden").with_code(403);
            let (operation, source) = (Operation::new("list", "ConfigMaps"), kube::Error::Api(status.boxed()));
            Err(WatchError::Request(RequestError::Failed { operation, source, origin: Origin::Management }))
        };
        assert!(matches!(configs.apply_watch_result(forbidden()), AffectedNodes::All));
        assert!(matches!(configs.apply_watch_result(forbidden()), AffectedNodes::None));
        let AgentConfigState::Unreadable(error) = configs.get("n1") else { panic!("the watch failed") };
        assert!(error.len() < 500 && error.contains("no"), "{error}");
    }
}
