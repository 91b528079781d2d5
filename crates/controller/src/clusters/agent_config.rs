//! The configuration of the reclaim agents of one cluster: a ConfigMap per Node, owned by the Node, so that the cluster's
//! garbage collection removes it with the Node.

use std::sync::Arc;

use fivespot_api::keys;
use futures::Stream;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;

use super::subscribers::AffectedNodes;
use crate::runtime::cache::{Cache, CacheEvent};
use crate::runtime::watches::{describe_watch_error, watch_with_retries};

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
    /// The last error of the watch, until it succeeds.
    watch_error: Mutex<Option<String>>,
}

impl AgentConfigCache {
    pub(super) fn new(cluster: String, namespace: Arc<str>) -> Self {
        AgentConfigCache { cluster, namespace, cache: Cache::new(()), watch_error: Mutex::default() }
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
    pub(super) fn watch(
        &self,
        client: Client,
    ) -> impl Stream<Item = Result<watcher::Event<ConfigMap>, watcher::Error>> + Send + 'static {
        let label = format!("{}={}", keys::RECLAIM_AGENT_LABEL, keys::RECLAIM_AGENT_ENABLED);
        let configs: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        watch_with_retries(configs, watcher::Config::default().labels(&label))
    }

    /// Applies an item of the watch and returns the Nodes whose configuration it concerns.
    pub(super) fn apply_watch_result(
        &self,
        result: Result<watcher::Event<ConfigMap>, watcher::Error>,
    ) -> AffectedNodes {
        let event = match result {
            Ok(event) => event,
            Err(error) => return self.record_watch_error(&error),
        };
        // The start of a list is not a success yet.
        let is_start = matches!(event, watcher::Event::Init);
        let event = self.cache.apply_watch_event(event.modify(|config| config.metadata.managed_fields = None));
        if !is_start && self.cache.is_ready() && self.watch_error.lock().take().is_some() {
            return AffectedNodes::All;
        }
        match event {
            CacheEvent::Unchanged => AffectedNodes::None,
            CacheEvent::Applied { after: config, .. } | CacheEvent::Deleted { object: config, .. } => node_of(&config),
            CacheEvent::Resynced => AffectedNodes::All,
        }
    }

    fn record_watch_error(&self, error: &watcher::Error) -> AffectedNodes {
        let error = describe_watch_error(error);
        let before = self.watch_error.lock().replace(error.clone());
        // The watch is retried for as long as it fails: log each error once.
        if before.as_ref() != Some(&error) {
            tracing::warn!(cluster = self.cluster, namespace = %self.namespace, error, "Cannot watch agent configuration");
        }
        if before.is_none() { AffectedNodes::All } else { AffectedNodes::None }
    }

    fn cached(&self, node: &str) -> Option<Arc<ConfigMap>> {
        self.cache.get(&self.namespace, &keys::reclaim_config_map(node))
    }
}

fn node_of(config: &ConfigMap) -> AffectedNodes {
    let (name, prefix) = (config.name_any(), keys::reclaim_config_map(""));
    name.strip_prefix(&prefix).map_or(AffectedNodes::None, |node| AffectedNodes::One(node.to_owned()))
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
    use super::*;

    #[test]
    fn forbidden_watch_is_truncated_and_notifies_once() {
        let configs = AgentConfigCache::new("team/edge".to_owned(), "5spot-system".into());
        let forbidden = || {
            let status =
                kube::core::Status::failure(&format!("no\n{}", "!".repeat(1_000_000)), "Forbidden").with_code(403);
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())))
        };
        assert!(matches!(configs.apply_watch_result(forbidden()), AffectedNodes::All));
        assert!(matches!(configs.apply_watch_result(forbidden()), AffectedNodes::None));
        let AgentConfigState::Unreadable(error) = configs.get("n1") else { panic!("the watch failed") };
        assert!(error.len() < 500 && error.contains("no"), "{error}");
    }
}
