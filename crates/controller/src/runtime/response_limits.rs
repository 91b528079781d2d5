//! Limits on the responses of workload clusters, whose API servers belong to tenants.
//!
//! The client collects a response in memory before it is parsed, and the line of a watch as well. Both have a maximum. Most
//! responses are small; of the large ones only a few are received at a time, so that many servers together cannot exhaust
//! the memory either. Each namespace has a share of its own, so that one tenant's servers do not keep out another's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service};

use super::large_responses::{LargePermit, LargePermits};
use super::resolver::{Lookups, Resolver};

const KIB: usize = 1024;
/// Larger than any object that etcd stores.
const MAX_RESPONSE: usize = 2048 * KIB;
/// A failure says why in a few sentences.
const MAX_ERROR_RESPONSE: usize = 64 * KIB;
/// One object, in one line. The rest of a longer line is not received: the object says in its first bytes which one it is.
const MAX_WATCH_EVENT: usize = 1024 * KIB;
/// A line that does not end before this one is no object that etcd stores, escaped in JSON.
const MAX_SKIPPED: usize = 16 * 1024 * KIB;
/// What each chunk of a response costs in addition to its bytes: a server can send one byte at a time.
const CHUNK_OVERHEAD: usize = 64;
/// A response up to this size needs no permit.
const MAX_SMALL: usize = 64 * KIB;
/// How long a large response may take once it has its permit.
const LARGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests other than watches that one client sends at a time: each has a connection with buffers of its own.
const MAX_REQUESTS: usize = 16;

/// A server sent more than the controller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitExceeded {
    #[error("the response is larger than {} KiB", max / KIB)]
    Response { max: usize },
    #[error("a watch event is larger than {} KiB", MAX_SKIPPED / KIB)]
    WatchEvent,
    #[error("a response of more than {} KiB took longer than {} s", MAX_SMALL / KIB, LARGE_TIMEOUT.as_secs())]
    Slow,
}

/// What the clients of all workload clusters share.
#[derive(Debug)]
pub(crate) struct LargeResponses {
    permits: Arc<LargePermits>,
    lookups: Lookups,
}

impl LargeResponses {
    pub(crate) fn new() -> Self {
        LargeResponses { permits: LargePermits::new(), lookups: Lookups::new() }
    }

    /// The limits for a client of a Cluster in this namespace.
    pub(crate) fn limits(&self, namespace: &str) -> ResponseLimits {
        let requests = Arc::new(Semaphore::new(MAX_REQUESTS));
        let resolver = self.lookups.resolver(namespace);
        ResponseLimits { requests, large: Arc::clone(&self.permits), namespace: namespace.into(), resolver }
    }
}

/// Limits the responses to one client.
#[derive(Clone, Debug)]
pub(crate) struct ResponseLimits {
    requests: Arc<Semaphore>,
    large: Arc<LargePermits>,
    namespace: Arc<str>,
    pub(super) resolver: Resolver,
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
        let is_single = is_list_of_one(request.uri().query());
        let limits = self.limits.clone();
        // Nothing is sent until the future is polled.
        let response = self.inner.call(request);
        let respond = async move {
            let request = if is_watch {
                None
            } else {
                Some(Arc::clone(&limits.requests).acquire_owned().await.expect("the semaphore is never closed"))
            };
            let response = response.await?;
            let limit = match response.status() {
                code if code.is_client_error() || code.is_server_error() => Limit::Whole(MAX_ERROR_RESPONSE),
                _ if is_watch => Limit::Line,
                _ if is_single => Limit::First(MAX_RESPONSE),
                _ => Limit::Whole(MAX_RESPONSE),
            };
            Ok(response.map(|inner| LimitedBody { inner, limit, received: 0, limits, permit: Permit::Small, request }))
        };
        respond.boxed()
    }
}

/// Whether a request is a watch.
pub(crate) fn is_watch(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|parameter| parameter == "watch=true"))
}

/// Whether a request lists one object at a time.
fn is_list_of_one(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|parameter| parameter == "limit=1"))
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Bytes of the whole body.
    Whole(usize),
    /// The same, but the body ends there: the list of one object says in its first bytes how to continue after it.
    First(usize),
    /// Bytes between two line breaks. The rest of a line is dropped.
    Line,
}

enum Permit {
    Small,
    Waiting(BoxFuture<'static, LargePermit>),
    Large { _permit: LargePermit, timeout: Pin<Box<tokio::time::Sleep>> },
}

/// A body that fails when it exceeds its limit.
pub(crate) struct LimitedBody<B> {
    inner: B,
    limit: Limit,
    /// Bytes of the body, or of the current line.
    received: usize,
    limits: ResponseLimits,
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
            let (large, namespace) = (Arc::clone(&self.limits.large), self.limits.namespace.to_string());
            self.permit = Permit::Waiting(large.acquire(namespace).boxed());
        }
        if let Permit::Waiting(permit) = &mut self.permit {
            let permit = ready!(permit.poll_unpin(context));
            self.permit = Permit::Large { _permit: permit, timeout: Box::pin(tokio::time::sleep(LARGE_TIMEOUT)) };
        }
        let is_slow = match &mut self.permit {
            Permit::Large { timeout, .. } => timeout.poll_unpin(context).is_ready(),
            Permit::Small | Permit::Waiting(_) => false,
        };
        Poll::Ready(if is_slow { Err(LimitExceeded::Slow) } else { Ok(()) })
    }

    /// Counts received bytes, and returns those to keep; `None` at the end of a body that is cut off.
    fn count(&mut self, data: Bytes) -> Result<Option<Bytes>, LimitExceeded> {
        match self.limit {
            Limit::Whole(max) | Limit::First(max) => {
                // The chunks are collected.
                let before = self.received;
                self.received += data.len() + CHUNK_OVERHEAD;
                match self.limit {
                    _ if self.received <= max => Ok(Some(data)),
                    Limit::First(_) if before > max => Ok(None),
                    // The rest of a character that began in the chunk before.
                    Limit::First(_) => {
                        Ok(Some(data.slice(..data.iter().take_while(|it| is_continuation(**it)).count())))
                    }
                    Limit::Whole(_) | Limit::Line => Err(LimitExceeded::Response { max }),
                }
            }
            Limit::Line => {
                let kept = self.count_lines(&data)?;
                // A permit is for the object that is being received, also if the next one is awaited for a long time.
                if self.received <= MAX_SMALL {
                    self.permit = Permit::Small;
                }
                Ok(Some(kept.map_or(data, Bytes::from)))
            }
        }
    }

    /// Counts the bytes of lines. Returns what is kept, if it is not everything.
    fn count_lines(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, LimitExceeded> {
        let (mut kept, mut is_cut) = (Vec::new(), false);
        let longest = data.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or_default();
        let fits = self.received + longest <= MAX_WATCH_EVENT;
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            let (text, end) = line.split_at(line.len() - usize::from(line.ends_with(b"\n")));
            if !fits {
                let room = MAX_WATCH_EVENT.saturating_sub(self.received).min(text.len());
                kept.extend_from_slice(&text[..room]);
                kept.extend_from_slice(end);
                is_cut |= room < text.len();
            }
            self.received += text.len();
            if self.received > MAX_SKIPPED {
                return Err(LimitExceeded::WatchEvent);
            }
            if !end.is_empty() {
                self.received = 0;
            }
        }
        Ok(is_cut.then_some(kept))
    }
}

/// Whether a byte of UTF-8 does not start a character.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

impl<B> HttpBody for LimitedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
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
        let Ok(data) = frame.into_data() else { return Poll::Ready(None) };
        let kept = this.count(data).transpose();
        Poll::Ready(kept.map(|kept| kept.map(Frame::data).map_err(BoxError::from)))
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
        let (inner, limits) = (StreamBody::new(chunks), limits.clone());
        LimitedBody { inner, limit, received: 0, limits, permit: Permit::Small, request: None }
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
    async fn long_line_is_cut_off_and_the_next_one_is_complete() {
        let lines = format!("first\n{}\nlast\n", "a".repeat(3 * MAX_WATCH_EVENT));
        for chunk_len in [1024, 100_000, lines.len()] {
            let chunks: Vec<_> = lines.as_bytes().chunks(chunk_len).map(bytes::Bytes::copy_from_slice).collect();
            let chunks = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk))).boxed();
            let received = body(&limits(), Limit::Line, chunks).collect().await.unwrap().to_bytes();
            let received: Vec<&[u8]> = received.split(|byte| *byte == b'\n').collect();
            assert_eq!(received.iter().map(|line| line.len()).collect::<Vec<_>>(), [5, MAX_WATCH_EVENT, 4, 0]);
            assert_eq!(received[2], b"last");
        }
    }

    #[tokio::test]
    async fn list_of_one_object_is_cut_off_at_a_character() {
        let text = "é".repeat(MAX_RESPONSE);
        let chunks: Vec<_> = text.as_bytes().chunks(1001).map(bytes::Bytes::copy_from_slice).collect();
        let chunks = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk))).boxed();
        let received = body(&limits(), Limit::First(MAX_RESPONSE), chunks).collect().await.unwrap().to_bytes();
        let received = String::from_utf8(received.to_vec()).unwrap();
        assert!(received.len() > MAX_RESPONSE / 2 && received.len() <= MAX_RESPONSE, "{}", received.len());
        assert!(is_list_of_one(Some("a=b&limit=1")) && !is_list_of_one(Some("limit=10")));
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
