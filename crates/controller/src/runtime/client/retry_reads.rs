//! Retries the start of a watch and the next page of a list while the API server is busy.
//!
//! An API server that initialises its watch cache, or whose cache lags, rejects both with 429, 503 or 504. kube's watcher, and
//! the controller with it, would then list all objects from the first page on, which is the most expensive request that there
//! is. With thousands of objects the list might never be complete.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use kube::client::Body;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::runtime::response_limits::is_watch;

/// The API server may take 3 s for each response. All attempts together are shorter than the timeout of a list.
const DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Limit of what the API server requests to wait.
const MAX_DELAY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
pub(super) struct RetryReadsLayer;

impl<S> Layer<S> for RetryReadsLayer {
    type Service = RetryReads<S>;

    fn layer(&self, inner: S) -> RetryReads<S> {
        RetryReads { inner }
    }
}

#[derive(Clone)]
pub(super) struct RetryReads<S> {
    inner: S,
}

impl<S, B> Service<Request<Body>> for RetryReads<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let repeated = is_retried(&request).then(|| without_body(&request));
        // Called here, so that the request is in the span of its caller.
        let response = self.inner.call(request);
        let Some(request) = repeated else { return Box::pin(response) };
        let inner = self.inner.clone();
        Box::pin(async move {
            let mut response = response.await?;
            for delay in DELAYS {
                if !is_busy(response.status()) {
                    break;
                }
                tokio::time::sleep(requested_delay(response.headers()).unwrap_or(delay)).await;
                response = inner.clone().oneshot(without_body(&request)).await?;
            }
            Ok(response)
        })
    }
}

/// Whether a failure of the request means that all objects are listed again.
fn is_retried(request: &Request<Body>) -> bool {
    let query = request.uri().query();
    let is_next_page = |query: &str| query.split('&').any(|it| it.starts_with("continue="));
    request.method() == Method::GET && (is_watch(query) || query.is_some_and(is_next_page))
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_DELAY))
}

/// A copy of a request that reads.
fn without_body(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;
    use http::header::ACCEPT;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    const PAGE: &str = "/apis/cluster.x-k8s.io/v1beta2/machines?&limit=20&continue=abc";

    /// Sends a GET to a server that sends these codes, one after the other, and returns the last code and the number of requests.
    async fn send(uri: &str, codes: &[u16], retry_after: Option<&'static str>) -> (u16, usize) {
        let received = Arc::new(Mutex::new(Vec::new()));
        let (log, codes) = (Arc::clone(&received), codes.to_vec());
        let server = tower::service_fn(move |request: Request<Body>| {
            let mut log = log.lock();
            let code = codes[log.len().min(codes.len() - 1)];
            log.push((request.uri().to_string(), request.headers().get(ACCEPT).cloned()));
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            response.headers_mut().extend(retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_static(it))));
            std::future::ready(Ok::<_, BoxError>(response))
        });
        let request = Request::get(uri).header(ACCEPT, "application/json").body(Body::empty()).unwrap();
        let response = RetryReadsLayer.layer(server).oneshot(request).await.unwrap();
        let received = received.lock();
        assert!(received.iter().all(|it| it.0 == uri && it.1.is_some()), "{received:?}");
        (response.status().as_u16(), received.len())
    }

    #[tokio::test(start_paused = true)]
    async fn watch_and_next_page_are_retried_while_server_is_busy() {
        for uri in [PAGE, "/api/v1/nodes?watch=true&resourceVersion=7"] {
            assert_eq!(send(uri, &[429, 503, 504, 200], None).await, (200, 4), "{uri}");
            assert_eq!(send(uri, &[504], None).await, (504, 4), "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delay_is_the_requested_one_up_to_a_limit() {
        let start = Instant::now();
        assert_eq!(send(PAGE, &[429, 200], Some("2")).await, (200, 2));
        assert_eq!(start.elapsed().as_secs(), 2);
        assert_eq!(send(PAGE, &[429, 200], Some("3600")).await, (200, 2));
        assert_eq!(start.elapsed().as_secs(), 2 + MAX_DELAY.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn other_requests_and_errors_are_not_retried() {
        for uri in ["/api/v1/nodes?limit=20", "/api/v1/nodes/a", "/api/v1/nodes?limit=1&resourceVersion=7"] {
            assert_eq!(send(uri, &[429, 200], None).await, (429, 1), "{uri}");
        }
        for code in [400, 403, 410, 500] {
            assert_eq!(send(PAGE, &[code, 200], None).await, (code, 1));
        }
    }
}
