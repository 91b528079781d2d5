//! What the agent is told to look for, by its ConfigMap in the cluster.

use std::time::{Duration, Instant};

use fivespot_api::keys;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::utils::{Backoff as Pauses, WatchStreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tracing::{info, warn};

use crate::backoff::Backoff;

/// An API server that is away is asked again at least so often.
const MOST: Duration = Duration::from_secs(5);
/// After so long without trouble, the next is a new one.
const LONG_AGO: Duration = Duration::from_secs(30);

/// Where the orders are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn of_node(node: &str, namespace: &str) -> Self {
        Place { namespace: namespace.to_owned(), name: keys::reclaim_config_map(node) }
    }

    fn maps(&self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// The orders as they are now; `None` if there are none.
    pub(crate) async fn read(&self, client: &Client) -> Result<Option<String>, kube::Error> {
        Ok(self.maps(client).get_opt(&self.name).await?.and_then(|it| self.text(it)))
    }

    /// The orders now and whenever they change: their text, or `None` where there are none. While the API server is away
    /// nothing is told, and the last ones hold.
    pub(crate) fn watch(self, client: &Client) -> BoxStream<'static, Option<String>> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let events = watcher::watcher(self.maps(client), only).backoff(Steady::new());
        self.told(events).boxed()
    }

    fn told(
        self,
        events: impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Send + 'static,
    ) -> impl Stream<Item = Option<String>> + Send + 'static {
        let (mut there, mut away) = (false, false);
        events.filter_map(move |event| {
            if let Err(error) = &event {
                // Once: it is tried again until it works.
                if !std::mem::replace(&mut away, true) {
                    let (what, reason) = (self.to_string(), fivespot_cli_support::chain(error));
                    warn!(
                        what,
                        reason,
                        "it cannot be watched for now; the last orders hold, and it is tried again. What the agent needs to be \
                         allowed is in deploy/node-agent"
                    );
                }
            } else if !matches!(event, Ok(Event::Init)) && std::mem::replace(&mut away, false) {
                info!(what = self.to_string(), "it is watched again");
            }
            let news = match event {
                Ok(Event::Init) => {
                    there = false;
                    None
                }
                Ok(Event::InitApply(map) | Event::Apply(map)) => {
                    there = true;
                    Some(self.text(map))
                }
                Ok(Event::InitDone) => (!there).then_some(None),
                Ok(Event::Delete(_)) => Some(None),
                Err(_) => None,
            };
            std::future::ready(news)
        })
    }

    fn text(&self, mut map: ConfigMap) -> Option<String> {
        let text = map.data.as_mut().and_then(|it| it.remove(keys::RECLAIM_CONFIG_KEY));
        if text.is_none() {
            warn!(what = self.to_string(), "it has no key {}: nothing to look for", keys::RECLAIM_CONFIG_KEY);
        }
        text
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ConfigMap {}/{}", self.namespace, self.name)
    }
}

/// The pauses between attempts to watch. They begin anew when the last one is long ago: the watcher also calls it a success
/// that it begins another attempt.
struct Steady {
    pauses: Backoff,
    last: Option<Instant>,
}

impl Steady {
    fn new() -> Self {
        Steady { pauses: Backoff::new(), last: None }
    }
}

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.replace(Instant::now()).is_some_and(|it| it.elapsed() > LONG_AGO) {
            self.pauses = Backoff::new();
        }
        Some(self.pauses.next(MOST))
    }
}

impl Pauses for Steady {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_that_stays_away_is_asked_ever_more_seldom() {
        let mut pauses = Steady::new();
        let asked: Vec<Duration> = (0..20)
            .map(|_| {
                pauses.reset();
                pauses.next().unwrap()
            })
            .collect();
        assert!(asked[0] <= Duration::from_millis(100), "{asked:?}");
        assert!(asked[8..].iter().all(|it| *it >= MOST / 2 && *it <= MOST), "{asked:?}");
    }
}
