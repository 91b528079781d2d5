//! Watches: of the management cluster, and what all watches have in common.

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::runtime::backoff::Backoff;
use crate::runtime::health::Health;
use crate::runtime::request::{describe, truncate};

/// The API server does not serve this kind (any more).
pub(crate) struct NotServed(pub(crate) &'static str);

/// Objects per page of a list. A page is held in memory as a whole, and each of its objects can have 1.5 MB.
const PAGE_SIZE: u32 = 20;

/// Watches all objects of one kind until the API server no longer serves it. Every other failure is retried, and reported
/// by `/ready` while it lasts.
pub(crate) async fn watch<K>(kind: &'static str, api: Api<K>, health: &Health, handle: impl Fn(Event<K>)) -> NotServed
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut stream = Box::pin(watch_with_retries(api, watcher::Config::default().page_size(PAGE_SIZE)));
    loop {
        match stream.next().await {
            Some(Ok(event)) => {
                // The start of a list is not a success yet.
                if !matches!(event, Event::Init) {
                    health.watch_works(kind);
                }
                handle(event);
            }
            Some(Err(error)) if is_not_served(&error) => return NotServed(kind),
            Some(Err(error)) => {
                let error = describe_watch_error(&error);
                tracing::warn!(kind, error, "Watch failed");
                health.watch_failed(kind, error);
            }
            None => return NotServed(kind),
        }
    }
}

/// Watches objects, with a delay after each error, and lists all objects again after it: the API server may have been away
/// because etcd was restored from a backup, and the event that could not be read is lost.
pub(crate) fn watch_with_retries<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let start = move || watcher::watcher(api.clone(), config.clone()).boxed();
    let (stream, backoff, has_failed) = (start(), Backoff::watch(), false);
    futures::stream::unfold(
        (stream, backoff, has_failed, start),
        async |(mut stream, mut backoff, has_failed, start)| {
            if has_failed {
                tokio::time::sleep(backoff.delay()).await;
                stream = start();
            }
            let result = stream.next().await?;
            let has_failed = result.is_err();
            Some((result, (stream, backoff, has_failed, start)))
        },
    )
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
