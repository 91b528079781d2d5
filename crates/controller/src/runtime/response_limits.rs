//! Limits on the responses of workload clusters, whose API servers belong to tenants.
//!
//! The client collects a response in memory before it is parsed, and the line of a watch as well. Both have a maximum. Most
//! responses are small; of the large ones only a few are received at a time, so that many servers together cannot exhaust
//! the memory either. Each namespace has a share of its own, so that one tenant's servers do not keep out another's.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service};

const KIB: usize = 1024;
/// Larger than any object that etcd stores.
const MAX_RESPONSE: usize = 2048 * KIB;
/// A failure says why in a few sentences.
const MAX_ERROR_RESPONSE: usize = 64 * KIB;
/// One object, in one line.
const MAX_WATCH_EVENT: usize = 1024 * KIB;
/// What each chunk of a response costs in addition to its bytes: a server can send one byte at a time.
const CHUNK_OVERHEAD: usize = 64;
/// A response up to this size needs no permit.
const MAX_SMALL: usize = 64 * KIB;
/// How long a large response may take once it has its permit.
const LARGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Large responses that are received at a time.
const MAX_LARGE: usize = 12;
const MAX_LARGE_PER_NAMESPACE: usize = 3;
/// Requests other than watches that one client sends at a time: each has a connection with buffers of its own.
const MAX_REQUESTS: usize = 16;

/// A server sent more than the controller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitExceeded {
    #[error("the response is larger than {} KiB", max / KIB)]
    Response { max: usize },
    #[error("a watch event is larger than {} KiB", MAX_WATCH_EVENT / KIB)]
    WatchEvent,
    #[error("a response of more than {} KiB took longer than {} s", MAX_SMALL / KIB, LARGE_TIMEOUT.as_secs())]
    Slow,
}

/// Permits for large responses, shared by all workload clusters.
#[derive(Debug)]
pub(crate) struct LargeResponses {
    all: Arc<Semaphore>,
    by_namespace: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl LargeResponses {
    pub(crate) fn new() -> Self {
        LargeResponses { all: Arc::new(Semaphore::new(MAX_LARGE)), by_namespace: Mutex::default() }
    }

    /// The limits for a client of a Cluster in this namespace.
    pub(crate) fn limits(&self, namespace: &str) -> ResponseLimits {
        let mut by_namespace = self.by_namespace.lock();
        by_namespace.retain(|_, semaphore| semaphore.strong_count() > 0);
        let share = by_namespace.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let share = Arc::new(Semaphore::new(MAX_LARGE_PER_NAMESPACE));
            by_namespace.insert(namespace.to_owned(), Arc::downgrade(&share));
            share
        });
        let large = LargePermits { share, all: Arc::clone(&self.all) };
        ResponseLimits { requests: Arc::new(Semaphore::new(MAX_REQUESTS)), large }
    }
}

#[derive(Clone, Debug)]
struct LargePermits {
    share: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl LargePermits {
    async fn acquire(self) -> Permits {
        // In this order, so that a tenant that waits for its share keeps out no other.
        let share = self.share.acquire_owned().await.expect("the semaphore is never closed");
        (share, self.all.acquire_owned().await.expect("the semaphore is never closed"))
    }
}

/// Limits the responses to one client.
#[derive(Clone, Debug)]
pub(crate) struct ResponseLimits {
    requests: Arc<Semaphore>,
    large: LargePermits,
}

impl<S> Layer<S> for ResponseLimits {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> LimitedService<S> {
        LimitedService { inner, limits: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct LimitedService<S> {
    inner: S,
    limits: ResponseLimits,
}

impl<S, B> Service<Request<Body>> for LimitedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<LimitedBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(request.uri().query());
        let (requests, large) = (Arc::clone(&self.limits.requests), self.limits.large.clone());
        // Nothing is sent until the future is polled.
        let response = self.inner.call(request);
        let respond = async move {
            let request = if is_watch {
                None
            } else {
                Some(requests.acquire_owned().await.expect("the semaphore is never closed"))
            };
            let response = response.await?;
            let limit = match response.status() {
                code if code.is_client_error() || code.is_server_error() => Limit::Whole(MAX_ERROR_RESPONSE),
                _ if is_watch => Limit::Line,
                _ => Limit::Whole(MAX_RESPONSE),
            };
            Ok(response.map(|inner| LimitedBody { inner, limit, received: 0, large, permit: Permit::Small, request }))
        };
        respond.boxed()
    }
}

/// Whether a request is a watch.
pub(crate) fn is_watch(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|parameter| parameter == "watch=true"))
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Bytes of the whole body.
    Whole(usize),
    /// Bytes between two line breaks.
    Line,
}

impl Limit {
    fn exceeded_by(self, received: usize) -> Option<LimitExceeded> {
        match self {
            Limit::Whole(max) => (received > max).then_some(LimitExceeded::Response { max }),
            Limit::Line => (received > MAX_WATCH_EVENT).then_some(LimitExceeded::WatchEvent),
        }
    }
}

enum Permit {
    Small,
    Waiting(BoxFuture<'static, Permits>),
    Large { _permits: Permits, timeout: Pin<Box<tokio::time::Sleep>> },
}

/// A body that fails when it exceeds its limit.
pub(crate) struct LimitedBody<B> {
    inner: B,
    limit: Limit,
    /// Bytes of the body, or of the current line.
    received: usize,
    large: LargePermits,
    permit: Permit,
    /// Released when the body has been received.
    #[expect(dead_code, reason = "held until the body is dropped")]
    request: Option<OwnedSemaphorePermit>,
}

impl<B> LimitedBody<B> {
    /// Waits until the next bytes may be received.
    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LimitExceeded>> {
        if self.received <= MAX_SMALL {
            self.permit = Permit::Small;
            return Poll::Ready(Ok(()));
        }
        if matches!(self.permit, Permit::Small) {
            self.permit = Permit::Waiting(self.large.clone().acquire().boxed());
        }
        if let Permit::Waiting(permits) = &mut self.permit {
            let permits = ready!(permits.poll_unpin(context));
            self.permit = Permit::Large { _permits: permits, timeout: Box::pin(tokio::time::sleep(LARGE_TIMEOUT)) };
        }
        let is_slow = match &mut self.permit {
            Permit::Large { timeout, .. } => timeout.poll_unpin(context).is_ready(),
            Permit::Small | Permit::Waiting(_) => false,
        };
        Poll::Ready(if is_slow { Err(LimitExceeded::Slow) } else { Ok(()) })
    }

    fn count(&mut self, data: &[u8]) -> Result<(), LimitExceeded> {
        let mut lines = data.rsplit(|byte| *byte == b'\n');
        let last = lines.next().unwrap_or_default();
        // The longest line of this chunk, the first of which continues the one before.
        self.received += match self.limit {
            // The chunks are collected, those of a line are copied.
            Limit::Whole(_) => data.len() + CHUNK_OVERHEAD,
            Limit::Line => data.split(|byte| *byte == b'\n').next().unwrap_or_default().len(),
        };
        if let Some(exceeded) = self.limit.exceeded_by(self.received) {
            return Err(exceeded);
        }
        if matches!(self.limit, Limit::Line) && last.len() < data.len() {
            self.received = last.len();
        }
        Ok(())
    }
}

impl<B> HttpBody for LimitedBody<B>
where
    B: HttpBody<Data = bytes::Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, BoxError>>> {
        let this = &mut *self;
        if let Err(exceeded) = ready!(this.poll_permit(context)) {
            return Poll::Ready(Some(Err(exceeded.into())));
        }
        let frame = match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other.map(|frame| frame.map_err(Into::into))),
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| this.count(data));
        Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    type Chunks = stream::BoxStream<'static, Result<Frame<bytes::Bytes>, BoxError>>;

    fn limits() -> ResponseLimits {
        LargeResponses::new().limits("team")
    }

    fn body(limits: &ResponseLimits, limit: Limit, chunks: Chunks) -> LimitedBody<StreamBody<Chunks>> {
        let large = limits.large.clone();
        LimitedBody { inner: StreamBody::new(chunks), limit, received: 0, large, permit: Permit::Small, request: None }
    }

    /// Endless chunks of 16 KiB, each of which ends with `end`.
    fn endless(end: u8) -> Chunks {
        let mut chunk = vec![b'a'; 16 * KIB];
        chunk[16 * KIB - 1] = end;
        stream::repeat(bytes::Bytes::from(chunk)).map(|chunk| Ok(Frame::data(chunk))).boxed()
    }

    async fn exceeded(mut body: LimitedBody<StreamBody<Chunks>>) -> LimitExceeded {
        loop {
            if let Err(error) = body.frame().await.unwrap() {
                return *error.downcast().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn endless_body_and_endless_line_fail() {
        let limits = limits();
        let whole = body(&limits, Limit::Whole(MAX_RESPONSE), endless(b'\n'));
        assert_eq!(exceeded(whole).await, LimitExceeded::Response { max: MAX_RESPONSE });
        assert_eq!(exceeded(body(&limits, Limit::Line, endless(b'a'))).await, LimitExceeded::WatchEvent);
    }

    #[tokio::test]
    async fn tiny_chunks_count_as_more_than_their_bytes() {
        let tiny = stream::repeat(bytes::Bytes::from_static(b"a")).map(|chunk| Ok(Frame::data(chunk))).boxed();
        let mut body = body(&limits(), Limit::Whole(MAX_RESPONSE), tiny);
        let mut chunks = 0;
        while body.frame().await.unwrap().is_ok() {
            chunks += 1;
        }
        assert!(chunks < 40_000, "{chunks}");
    }

    #[tokio::test]
    async fn watch_with_short_lines_does_not_end() {
        let mut lines = body(&limits(), Limit::Line, endless(b'\n'));
        for _ in 0..1000 {
            lines.frame().await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_large_responses_do_not_keep_out_another_namespace() {
        let large = LargeResponses::new();
        let (hostile, honest) = (large.limits("hostile"), large.limits("honest"));
        let stalled = || endless(b'a').take(6).chain(stream::pending()).boxed();
        let mut stalled: Vec<_> = (0..8).map(|_| body(&hostile, Limit::Line, stalled())).collect();
        for body in &mut stalled {
            // The last one waits for a permit: all of them together receive only so much.
            while let Some(frame) = body.frame().now_or_never() {
                frame.unwrap().unwrap();
            }
        }
        let response = body(&honest, Limit::Whole(MAX_RESPONSE), endless(b'a').take(64).boxed());
        assert_eq!(response.collect().await.unwrap().to_bytes().len(), MAX_RESPONSE / 2);
        // A permit is not held for ever.
        for body in stalled {
            assert_eq!(exceeded(body).await, LimitExceeded::Slow);
        }
    }
}
