//! Limits on the responses of the management cluster.
//!
//! Tenants decide how large their objects are, and the client collects a response in memory before it is parsed. So only a few
//! large objects are received at a time, whichever request reads or writes them, and namespaces take turns. Lists are exempt:
//! there are few, and their pages are small.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use tower::{Layer, Service};

use super::large_responses::{LargePermit, LargePermits};
use super::response_limits::is_watch;

/// A response up to this size needs no permit.
const MAX_SMALL: usize = 64 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct ObjectLimits(Arc<LargePermits>);

impl ObjectLimits {
    pub(crate) fn new() -> Self {
        ObjectLimits(LargePermits::new())
    }
}

impl<S> Layer<S> for ObjectLimits {
    type Service = ObjectService<S>;

    fn layer(&self, inner: S) -> ObjectService<S> {
        ObjectService { inner, limits: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct ObjectService<S> {
    inner: S,
    limits: ObjectLimits,
}

impl<S, B> Service<Request<Body>> for ObjectService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<ObjectBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_list = is_watch(request.uri().query()) || is_list(request.uri().query());
        let permit = if is_list {
            Permit::NotNeeded
        } else {
            Permit::Later(Arc::clone(&self.limits.0), namespace(request.uri().path()).to_owned())
        };
        let response = self.inner.call(request);
        async move { Ok(response.await?.map(|inner| ObjectBody { inner, received: 0, permit })) }.boxed()
    }
}

fn is_list(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|parameter| parameter.starts_with("limit=")))
}

/// The namespace in a path; empty for objects without one.
fn namespace(path: &str) -> &str {
    let mut segments = path.split('/');
    segments.find(|segment| *segment == "namespaces");
    segments.next().unwrap_or_default()
}

enum Permit {
    NotNeeded,
    Later(Arc<LargePermits>, String),
    Waiting(BoxFuture<'static, LargePermit>),
    Held { _permit: LargePermit },
}

/// A body that waits for a permit when it turns out to be large. The timeout of the request ends the wait.
pub(crate) struct ObjectBody<B> {
    inner: B,
    received: usize,
    permit: Permit,
}

impl<B> ObjectBody<B> {
    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.received <= MAX_SMALL {
            return Poll::Ready(());
        }
        if let Permit::Later(permits, namespace) = &self.permit {
            self.permit = Permit::Waiting(Arc::clone(permits).acquire(namespace.clone()).boxed());
        }
        if let Permit::Waiting(permit) = &mut self.permit {
            self.permit = Permit::Held { _permit: ready!(permit.poll_unpin(context)) };
        }
        Poll::Ready(())
    }
}

impl<B> HttpBody for ObjectBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        ready!(this.poll_permit(context));
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            this.received += frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Full};
    use tower::ServiceExt as _;

    use super::*;

    const LARGE: usize = 1024 * 1024;

    /// A response in chunks, as they arrive from a connection.
    fn response() -> Response<impl HttpBody<Data = Bytes, Error = Infallible> + Unpin> {
        let chunks = std::iter::repeat_n(Bytes::from(vec![b'a'; 16 * 1024]), LARGE / (16 * 1024));
        let chunks = futures::stream::iter(chunks.map(|chunk| Ok(Frame::data(chunk))));
        Response::new(http_body_util::StreamBody::new(chunks))
    }

    /// Sends requests for one path, and returns how many of their responses are received if none is finished.
    async fn received(limits: &ObjectLimits, uri: &str, requests: usize) -> usize {
        let inner = tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(response()));
        let mut open = Vec::new();
        for _ in 0..requests {
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let mut body = limits.layer(inner).oneshot(request).await.unwrap().into_body();
            while let Some(Some(frame)) = body.frame().now_or_never() {
                frame.unwrap();
            }
            open.push(body);
        }
        open.iter().filter(|body| body.received == LARGE).count()
    }

    #[tokio::test]
    async fn few_large_objects_are_received_at_a_time() {
        let limits = ObjectLimits::new();
        let secret = "/api/v1/namespaces/team/secrets/edge-kubeconfig";
        assert_eq!(received(&limits, secret, 20).await, 3);
        // Nothing is held any more.
        assert_eq!(received(&limits, secret, 20).await, 3);
        let cluster_wide = "/apis/5spot.finos.org/v1alpha1/scheduledmachines";
        assert_eq!(received(&limits, &format!("{cluster_wide}?limit=20"), 20).await, 20);
        assert_eq!(received(&limits, &format!("{cluster_wide}?watch=true"), 20).await, 20);
    }

    #[tokio::test]
    async fn small_objects_do_not_wait() {
        let limits = ObjectLimits::new();
        let large = tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(response()));
        let small = tower::service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
        });
        let request = || Request::get("/api/v1/namespaces/team/secrets/a").body(Body::empty()).unwrap();
        let mut open = Vec::new();
        for _ in 0..4 {
            let mut body = limits.layer(large).oneshot(request()).await.unwrap().into_body();
            while body.frame().now_or_never().flatten().is_some() {}
            open.push(body);
        }
        let body = limits.layer(small).oneshot(request()).await.unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{}");
    }

    #[test]
    fn namespace_is_taken_from_the_path() {
        for (path, expected) in [
            ("/api/v1/namespaces/team/secrets/a", "team"),
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines", "team"),
            ("/api/v1/nodes/a", ""),
        ] {
            assert_eq!(namespace(path), expected, "{path}");
        }
    }
}
