//! What the reclaim agents of one cluster are told: a ConfigMap for each Node that has an agent, owned by that Node, so that
//! the cluster itself removes it with the Node.

use std::sync::{Arc, Mutex};

use fivespot_api::keys;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};

use crate::cache::{Cache, Heard};
use crate::lock::lock;
use crate::pauses::Pauses;
use crate::trouble::gist;

/// What is known of the orders of one agent.
pub(crate) enum Posted {
    /// Nothing has been heard yet.
    Sought,
    /// They cannot be read.
    Unreadable(String),
    /// There are none.
    Nothing,
    /// These are.
    Found(Arc<ConfigMap>),
}

/// All orders of one cluster.
pub(super) struct Board {
    namespace: Arc<str>,
    cache: Cache<ConfigMap>,
    /// Why nothing is heard of them, since the watch last failed.
    trouble: Mutex<Option<String>>,
}

impl Board {
    pub(super) fn new(namespace: Arc<str>) -> Self {
        Board { namespace, cache: Cache::new(()), trouble: Mutex::default() }
    }

    /// What is known of the orders for this Node.
    pub(super) fn of(&self, node: &str) -> Posted {
        if !self.cache.is_synced() {
            return lock(&self.trouble).clone().map_or(Posted::Sought, Posted::Unreadable);
        }
        self.cache.get(&self.namespace, &keys::reclaim_config_map(node)).map_or(Posted::Nothing, Posted::Found)
    }

    pub(super) fn wrote(&self, orders: ConfigMap) {
        self.cache.saw(orders);
    }

    pub(super) fn deleted(&self, node: &str) {
        if let Some(known) = self.cache.get(&self.namespace, &keys::reclaim_config_map(node)) {
            self.cache.found_gone(&known);
        }
    }

    /// What the API server tells of orders, from now on and without end.
    pub(super) fn stream(
        &self,
        client: Client,
    ) -> impl Stream<Item = Result<watcher::Event<ConfigMap>, watcher::Error>> + Send + 'static {
        let ours = format!("{}={}", keys::RECLAIM_AGENT_LABEL, keys::RECLAIM_AGENT_ENABLED);
        let orders: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        watcher(orders, watcher::Config::default().labels(&ours)).backoff(Pauses::default()).boxed()
    }

    /// Takes what the API server tells. The answer is whom it concerns: one Node, or all.
    pub(super) fn hear(&self, event: Result<watcher::Event<ConfigMap>, watcher::Error>) -> Concerns {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let why = gist(&fivespot_cli_support::chain(&error));
                let before = lock(&self.trouble).replace(why.clone());
                // A cluster that goes on to say no is asked again and again, and that is no news.
                if before.as_ref() != Some(&why) {
                    tracing::warn!(error = why, namespace = %self.namespace, "the watch of the agents' orders failed");
                }
                return if before.is_none() { Concerns::All } else { Concerns::Nobody };
            }
        };
        let heard = self.cache.hear(event.modify(|it| it.metadata.managed_fields = None));
        if self.cache.is_synced() && lock(&self.trouble).take().is_some() {
            return Concerns::All;
        }
        match heard {
            Heard::Nothing => Concerns::Nobody,
            Heard::Changed { after: it, .. } | Heard::Gone { object: it, .. } => node_of(&it),
            Heard::All => Concerns::All,
        }
    }
}

/// Whom news of orders concern.
pub(super) enum Concerns {
    Nobody,
    Node(String),
    All,
}

fn node_of(orders: &ConfigMap) -> Concerns {
    let name = orders.name_any();
    let prefix = keys::reclaim_config_map("");
    name.strip_prefix(&prefix).map_or(Concerns::Nobody, |it| Concerns::Node(it.to_owned()))
}

/// Whether a Node lets the agent onto it, or a ConfigMap is ours: both have the same label.
pub(crate) fn is_enabled(object: &impl ResourceExt) -> bool {
    object.labels().get(keys::RECLAIM_AGENT_LABEL).is_some_and(|it| it == keys::RECLAIM_AGENT_ENABLED)
}

/// What the agent of this very Node is told, if that is all that the orders say.
pub(crate) fn text<'a>(orders: &'a ConfigMap, node: &Node) -> Option<&'a str> {
    let owned =
        orders.owner_references().iter().any(|it| it.kind == "Node" && Some(&it.uid) == node.metadata.uid.as_ref());
    let data = orders.data.as_ref().filter(|it| owned && it.len() == 1)?;
    data.get(keys::RECLAIM_CONFIG_KEY).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_says_that_does_not_let_us_read_is_passed_on_in_short_and_calls_everybody_once() {
        let board = Board::new("5spot-system".into());
        let says_no = || {
            let status =
                kube::core::Status::failure(&format!("no\n{}", "!".repeat(1_000_000)), "Forbidden").with_code(403);
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())))
        };
        assert!(matches!(board.hear(says_no()), Concerns::All));
        assert!(matches!(board.hear(says_no()), Concerns::Nobody));
        let Posted::Unreadable(why) = board.of("n1") else { panic!("it cannot be read") };
        assert!(why.len() < 500 && why.contains("no"), "{why}");
    }
}
