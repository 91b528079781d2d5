//! Reads and watches the ConfigMap that holds the agent configuration.

use std::time::Duration;

use fivespot_api::keys;
use fivespot_cli_support::chain;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::utils::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tracing::{info, warn};

use crate::backoff::WatchBackoff;

/// A new configuration must not wait longer than this for a watch that failed.
const MAX_WATCH_BACKOFF: Duration = Duration::from_secs(5);

/// `reclaim-agent-<node>` in the agent namespace.
#[derive(Clone, Debug)]
pub(crate) struct ConfigMapRef {
    namespace: String,
    name: String,
}

impl ConfigMapRef {
    pub(crate) fn of_node(node: &str, namespace: &str) -> Self {
        ConfigMapRef { namespace: namespace.to_owned(), name: keys::reclaim_config_map(node) }
    }

    fn api(&self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// The text of `reclaim.toml`; `None` if the ConfigMap or its key does not exist.
    pub(crate) async fn read(&self, client: &Client) -> Result<Option<String>, kube::Error> {
        Ok(self.api(client).get_opt(&self.name).await?.and_then(|map| self.text(map)))
    }

    /// The text of `reclaim.toml` now and after each change; `None` when it does not exist. Yields nothing while the API server
    /// is unreachable, so the last configuration stays in effect.
    pub(crate) fn watch(self, client: &Client) -> BoxStream<'static, Option<String>> {
        let only_this = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let events = watcher::watcher(self.api(client), only_this).backoff(WatchBackoff::up_to(MAX_WATCH_BACKOFF));
        self.texts(events).boxed()
    }

    fn texts(
        self,
        events: impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Send + 'static,
    ) -> impl Stream<Item = Option<String>> + Send + 'static {
        let (mut exists, mut failing) = (false, false);
        events.filter_map(move |event| {
            match &event {
                // Logged once: the watch is retried until it succeeds.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    let error = format!("{}; required permissions: deploy/node-agent", chain(error));
                    warn!(config = %self, error, "Cannot watch agent configuration; retrying and keeping the last one");
                }
                // Init is only the beginning of an attempt.
                Err(_) | Ok(Event::Init) => {}
                Ok(_) if std::mem::replace(&mut failing, false) => {
                    info!(config = %self, "Watching agent configuration again");
                }
                Ok(_) => {}
            }
            let text = match event {
                Ok(Event::Init) => {
                    exists = false;
                    None
                }
                Ok(Event::InitApply(map) | Event::Apply(map)) => {
                    exists = true;
                    Some(self.text(map))
                }
                Ok(Event::InitDone) => (!exists).then_some(None),
                Ok(Event::Delete(_)) => Some(None),
                Err(_) => None,
            };
            std::future::ready(text)
        })
    }

    fn text(&self, mut map: ConfigMap) -> Option<String> {
        let text = map.data.as_mut().and_then(|data| data.remove(keys::RECLAIM_CONFIG_KEY));
        if text.is_none() {
            warn!(config = %self, key = keys::RECLAIM_CONFIG_KEY, "ConfigMap lacks the agent configuration");
        }
        text
    }
}

impl std::fmt::Display for ConfigMapRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ConfigMap {}/{}", self.namespace, self.name)
    }
}
