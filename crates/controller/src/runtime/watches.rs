//! Watches of the management cluster.

use std::fmt::Debug;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::runtime::backoff::Backoff;
use crate::runtime::health::Health;
use crate::runtime::request::{MANAGEMENT_TIMEOUT, describe, truncate};

/// The API server does not serve this kind (any more).
pub(crate) struct NotServed(pub(crate) &'static str);

/// Objects per page of a list. A page is held in memory as a whole, and each of its objects can have 1.5 MB.
const PAGE_SIZE: u32 = 20;

/// Watches all objects of one kind until the API server no longer serves it. Every other failure is retried, and reported
/// by `/ready` while it lasts.
///
/// After any error, all objects are listed again: the API server may have been away because etcd was restored from a backup,
/// and an event that could not be decoded is lost.
pub(crate) async fn watch<K>(kind: &'static str, api: Api<K>, health: &Health, handle: impl Fn(Event<K>)) -> NotServed
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut backoff = Backoff::watch();
    loop {
        let error = list_and_watch(kind, &api, health, &handle).await;
        if is_not_served(&error) {
            return NotServed(kind);
        }
        let error = describe_watch_error(&error);
        tracing::warn!(kind, error, "Watch failed");
        health.watch_failed(kind, error);
        sleep(backoff.delay()).await;
    }
}

/// Lists all objects, then watches them until the first error.
async fn list_and_watch<K>(
    kind: &'static str,
    api: &Api<K>,
    health: &Health,
    handle: &impl Fn(Event<K>),
) -> watcher::Error
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher::watcher(api.clone(), watcher::Config::default().page_size(PAGE_SIZE)).boxed();
    let mut is_listing = true;
    loop {
        // A watch may be silent, a list may not.
        let event = if is_listing {
            timeout(MANAGEMENT_TIMEOUT, events.next()).await.unwrap_or_else(|_| Some(Err(no_response())))
        } else {
            events.next().await
        };
        match event.expect("a watcher ends only when it is dropped") {
            Ok(event) => {
                // The first pages of a list are no success: a later one may fail each time.
                is_listing = match event {
                    Event::Init | Event::InitApply(_) => true,
                    Event::InitDone | Event::Apply(_) | Event::Delete(_) => false,
                };
                if !is_listing {
                    health.watch_works(kind);
                }
                handle(event);
            }
            Err(error) => return error,
        }
    }
}

fn no_response() -> watcher::Error {
    let error = format!("no response within {} s", MANAGEMENT_TIMEOUT.as_secs());
    watcher::Error::InitialListFailed(kube::Error::Service(error.into()))
}

/// The error in one line of bounded length.
fn describe_watch_error(error: &watcher::Error) -> String {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use crate::runtime::metrics::Metrics;

    const KIND: &str = "ConfigMap";

    /// What a server sends in response to a request.
    enum Reply {
        Json(StatusCode, Value),
        /// Events of a watch that ends afterwards.
        Lines(&'static str),
        Nothing,
    }

    fn page(token: Option<&str>) -> Reply {
        let items = [json!({ "metadata": { "name": "a", "namespace": "ns" } })];
        let metadata = json!({ "resourceVersion": "7", "continue": token });
        Reply::Json(
            StatusCode::OK,
            json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items }),
        )
    }

    fn failure(code: u16) -> Reply {
        let status = json!({ "kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code });
        Reply::Json(StatusCode::from_u16(code).unwrap(), status)
    }

    /// Watches with a client whose server replies by the query of a request, until `handle` returns true.
    async fn watch_until(
        health: &Health,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
        handle: impl Fn(Event<ConfigMap>) -> bool,
    ) {
        let reply = Arc::new(reply);
        let service = tower::service_fn(move |request: Request<Body>| {
            let reply = reply(request.uri().query().unwrap_or_default());
            async move {
                let (status, body) = match reply {
                    Reply::Json(status, body) => (status, body.to_string()),
                    Reply::Lines(lines) => (StatusCode::OK, lines.to_owned()),
                    Reply::Nothing => std::future::pending().await,
                };
                Ok::<_, BoxError>(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap())
            }
        });
        let api = Api::all(Client::new(service, "default"));
        let done = tokio::sync::Notify::new();
        let handle = |event| {
            if handle(event) {
                done.notify_one();
            }
        };
        tokio::select! {
            biased;
            () = done.notified() => {}
            _ = watch(KIND, api, health, handle) => panic!("the kind is served"),
            () = sleep(Duration::from_hours(1)) => panic!("the watch does not get there"),
        }
    }

    fn health() -> Health {
        Health::new(Arc::new(Metrics::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_fails_after_its_first_page_is_no_success() {
        let (health, first_pages) = (health(), Mutex::new(0));
        let reply = |query: &str| if query.contains("continue=") { failure(500) } else { page(Some("next")) };
        watch_until(&health, reply, |event| {
            assert!(!matches!(event, Event::InitDone));
            let mut first_pages = first_pages.lock();
            *first_pages += usize::from(matches!(event, Event::InitApply(_)));
            if *first_pages > 1 {
                assert_eq!(health.failing_watch(KIND).as_deref(), Some("no"));
            }
            *first_pages == 3
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn list_without_response_fails() {
        let (health, is_first) = (health(), Mutex::new(true));
        let reply = move |_: &str| {
            if std::mem::take(&mut *is_first.lock()) { Reply::Nothing } else { page(None) }
        };
        let error = Mutex::new(None);
        watch_until(&health, reply, |event| {
            if matches!(event, Event::InitApply(_)) {
                *error.lock() = health.failing_watch(KIND);
            }
            matches!(event, Event::InitDone)
        })
        .await;
        assert_eq!(error.into_inner().as_deref(), Some("no response within 30 s"));
        assert_eq!(health.failing_watch(KIND), None);
    }

    #[tokio::test(start_paused = true)]
    async fn all_objects_are_listed_after_an_event_that_cannot_be_decoded() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let reply = move |query: &str| {
            let is_watch = query.contains("watch=true");
            recorded.lock().push(if is_watch { "watch" } else { "list" });
            if is_watch { Reply::Lines("{\"type\":\"MODIFIED\",\"object\":17}\n") } else { page(None) }
        };
        let lists = Mutex::new(0);
        watch_until(&health(), reply, |event| {
            *lists.lock() += usize::from(matches!(event, Event::InitDone));
            *lists.lock() == 2 || requests.lock().len() > 9
        })
        .await;
        assert_eq!(requests.lock()[..3], ["list", "watch", "list"]);
    }
}
