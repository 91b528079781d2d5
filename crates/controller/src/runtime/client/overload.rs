//! Obeys an API server that is overloaded: HTTP status 429 with `Retry-After`.
//!
//! API priority and fairness counts all requests of this controller together, so all of them wait, and not only the rejected
//! one. Such a response is plain text, and kube drops its header. A 429 with a `Status` is about one request, for example of
//! a webhook or of an eviction that a `PodDisruptionBudget` blocks: it concerns no other object.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::runtime::permits::WritePermits;
use crate::runtime::rate_limit::OncePer;
use crate::runtime::response_limits::is_watch;

/// The longest wait inside of a request: less than its timeout. If the pause is longer, the request fails.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The pause after a rejection without `Retry-After`, as of some load balancers.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Leases are renewed also while other requests wait: a process that loses its lease stops.
const LEASES: &str = "/apis/coordination.k8s.io/";

/// The request was not sent, because the API server has rejected others.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server is overloaded and requests clients to wait")]
pub(crate) struct Paused {
    pub(crate) retry_after: Duration,
}

#[derive(Clone)]
pub(super) struct OverloadLayer(Arc<Shared>);

struct Shared {
    writes: Arc<WritePermits>,
    log_limit: OncePer<()>,
}

impl OverloadLayer {
    pub(super) fn new(writes: &Arc<WritePermits>) -> Self {
        OverloadLayer(Arc::new(Shared { writes: Arc::clone(writes), log_limit: OncePer::new(LOG_INTERVAL) }))
    }
}

impl<S> Layer<S> for OverloadLayer {
    type Service = OverloadService<S>;

    fn layer(&self, inner: S) -> OverloadService<S> {
        OverloadService { inner, shared: Arc::clone(&self.0) }
    }
}

#[derive(Clone)]
pub(super) struct OverloadService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, B> Service<Request<Body>> for OverloadService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone takes the place of the service that is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let waits = !is_watch(request.uri().query()) && !request.uri().path().starts_with(LEASES);
        if !waits || shared.writes.paused_until().is_none() {
            // Called here, so that the request is in the span of its caller.
            let response = inner.call(request);
            return async move { response.await.inspect(|response| shared.observe(response)) }.boxed();
        }
        async move {
            shared.wait().await?;
            inner.call(request).await.inspect(|response| shared.observe(response))
        }
        .boxed()
    }
}

impl Shared {
    async fn wait(&self) -> Result<(), Paused> {
        let latest = Instant::now() + MAX_WAIT;
        // Other responses may extend the pause.
        while let Some(until) = self.writes.paused_until() {
            if until > latest {
                return Err(Paused { retry_after: until.saturating_duration_since(Instant::now()) });
            }
            tokio::time::sleep_until(until).await;
        }
        Ok(())
    }

    fn observe<B>(&self, response: &Response<B>) {
        let Some(pause) = requested_pause(response.status(), response.headers()) else { return };
        if self.writes.pause(pause) && self.log_limit.allows(&()) {
            let seconds = pause.as_secs();
            tracing::warn!(seconds, "Writes wait, because the API server rejects requests with HTTP status 429");
        }
    }
}

/// How long all requests have to wait; `None` if the response is no rejection, or is about one request.
fn requested_pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_status = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
    if status != StatusCode::TOO_MANY_REQUESTS || headers.get(CONTENT_TYPE).is_some_and(is_status) {
        return None;
    }
    // A server that shuts down closes the connection. The next request may reach another replica.
    if headers.get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close")) {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Some(seconds.map_or(DEFAULT_PAUSE, Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::HeaderValue;
    use tower::ServiceExt as _;

    use super::*;

    /// A server that rejects its first request as API priority and fairness does.
    fn service(
        retry_after: &'static str,
    ) -> (OverloadService<impl Clone + Send + 'static + TestService>, Arc<AtomicU32>) {
        let received = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&received);
        let inner = tower::service_fn(move |_: Request<Body>| {
            let is_first = counter.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let mut response = Response::new(());
                if is_first {
                    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(retry_after));
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                }
                Ok::<_, BoxError>(response)
            }
        });
        (OverloadLayer::new(&WritePermits::new(4)).layer(inner), received)
    }

    trait TestService: Service<Request<Body>, Response = Response<()>, Error = BoxError, Future: Send + 'static> {}
    impl<S> TestService for S where
        S: Service<Request<Body>, Response = Response<()>, Error = BoxError, Future: Send + 'static>
    {
    }

    fn request(uri: &str) -> Request<Body> {
        Request::builder().uri(uri).body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_is_sent_before_the_server_accepts_it() {
        let (service, received) = service("3");
        let send = |uri: &str| service.clone().oneshot(request(uri));
        let start = Instant::now();
        assert_eq!(send("/api/v1/nodes/a").await.unwrap().status(), 429);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let waits = tokio::spawn(send("/api/v1/nodes/b"));
        // Requests that must not wait.
        send("/api/v1/nodes?watch=true").await.unwrap();
        send("/apis/coordination.k8s.io/v1/namespaces/a/leases/b").await.unwrap();
        assert_eq!((start.elapsed(), received.load(Ordering::Relaxed)), (Duration::ZERO, 3));
        assert_eq!(waits.await.unwrap().unwrap().status(), 200);
        assert_eq!((start.elapsed().as_secs(), received.load(Ordering::Relaxed)), (3, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn request_fails_if_the_pause_is_long() {
        let (service, received) = service("30");
        let send = || service.clone().oneshot(request("/api/v1/nodes/a"));
        assert_eq!(send().await.unwrap().status(), 429);
        let error = send().await.unwrap_err();
        assert_eq!(error.downcast_ref::<Paused>().unwrap().retry_after.as_secs(), 30);
        assert_eq!(received.load(Ordering::Relaxed), 1);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(send().await.unwrap().status(), 200);
    }

    #[test]
    fn only_an_overloaded_server_pauses_all_requests() {
        let pause = |status: u16, headers: &[(http::HeaderName, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
            requested_pause(StatusCode::from_u16(status).unwrap(), &headers).map(|pause| pause.as_secs())
        };
        assert_eq!(pause(429, &[(RETRY_AFTER, "7"), (CONTENT_TYPE, "text/plain; charset=utf-8")]), Some(7));
        assert_eq!(pause(429, &[]), Some(1));
        assert_eq!(pause(429, &[(RETRY_AFTER, "Fri, 31 Dec 1999 23:59:59 GMT")]), Some(1));
        assert_eq!(pause(429, &[(RETRY_AFTER, "10"), (CONTENT_TYPE, "application/json")]), None);
        assert_eq!(pause(429, &[(RETRY_AFTER, "5"), (CONNECTION, "close")]), None, "one of several servers shuts down");
        assert_eq!(pause(503, &[(RETRY_AFTER, "7")]), None);
        assert_eq!(pause(200, &[]), None);
    }
}
