//! Watches of the management cluster.

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::runtime::backoff::Backoff;
use crate::runtime::request::{describe, truncate};

/// The API server does not serve this kind (any more).
pub(crate) struct NotServed(pub(crate) &'static str);

/// Objects per page of a list. A page is held in memory as a whole, and each of its objects can have 1.5 MB.
const PAGE_SIZE: u32 = 20;

/// Watches all objects of one kind until the API server no longer serves it. Every other failure is retried.
pub(crate) async fn watch<K>(kind: &'static str, api: Api<K>, handle: impl Fn(Event<K>)) -> NotServed
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    let mut stream = Box::pin(watcher::watcher(api, config).backoff(Backoff::watch()));
    loop {
        match stream.next().await {
            Some(Ok(event)) => handle(event),
            Some(Err(error)) if is_not_served(&error) => return NotServed(kind),
            Some(Err(error)) => tracing::warn!(kind, error = describe_watch_error(&error), "Watch failed"),
            None => return NotServed(kind),
        }
    }
}

/// The error in one line of bounded length.
pub(crate) fn describe_watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe(error),
        watcher::Error::WatchError(status) => truncate(&status.message),
        watcher::Error::NoResourceVersion => truncate(&error.to_string()),
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
