//! Clients of API servers that notice a dead connection, list again after etcd was restored, wait while the server is
//! overloaded, and count their requests.

mod overload;
mod resume_check;
mod retry_reads;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service, ServiceBuilder};
use tracing::Instrument as _;

use self::overload::OverloadLayer;
pub(crate) use self::overload::Paused;
use self::resume_check::ResumeCheckLayer;
use self::retry_reads::RetryReadsLayer;
use crate::runtime::metrics::Metrics;
use crate::runtime::object_limits::ObjectLimits;
use crate::runtime::permits::WritePermits;
use crate::runtime::resolver::Resolver;
use crate::runtime::response_limits::{ResponseLimits, is_watch};
use crate::telemetry::traces::request_span;

/// A connection on which nothing arrives is probed after this long, and is closed after three probes without a reply. A
/// quiet watch sends nothing by itself, so that without probes its dead connection looks like one without events.
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// A connection is closed if sent data is not acknowledged for this long (`TCP_USER_TIMEOUT`).
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may be silent whose host still answers: a watch ends after 290 s.
const READ_TIMEOUT: Duration = Duration::from_secs(310);

/// What is buffered of a connection, and so the longest header. The servers of workload clusters belong to tenants.
const MAX_BUFFER: usize = 64 * 1024;

/// Creates a client of the management cluster. It does not retry: a 429 is also how a `PodDisruptionBudget` blocks an
/// eviction, and the reconciler decides when to retry. While the API server is overloaded, writes and requests wait.
pub(crate) fn client(
    config: Config,
    metrics: &Arc<Metrics>,
    writes: &Arc<WritePermits>,
) -> Result<Client, kube::Error> {
    let namespace = config.default_namespace.clone();
    let layers = ServiceBuilder::new()
        .layer(ResumeCheckLayer::default())
        .layer(RetryReadsLayer)
        .layer(ObjectLimits::new())
        .layer(OverloadLayer::new(writes));
    let service = layers.service(service(config, metrics, Resolver::of_management_cluster())?);
    Ok(ClientBuilder::new(service, namespace).build())
}

/// Creates a client for a workload cluster, whose API server belongs to a tenant: its responses are limited.
pub(crate) fn workload_client(
    config: Config,
    metrics: &Arc<Metrics>,
    limits: &ResponseLimits,
) -> Result<Client, kube::Error> {
    let namespace = config.default_namespace.clone();
    let layers = ServiceBuilder::new().layer(ResumeCheckLayer::default()).layer(limits.clone());
    Ok(ClientBuilder::new(layers.service(service(config, metrics, limits.resolver.clone())?), namespace).build())
}

/// Sends requests and counts them.
fn service(
    mut config: Config,
    metrics: &Arc<Metrics>,
    resolver: Resolver,
) -> Result<
    impl Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send + 'static>
    + Clone
    + Send
    + 'static,
    kube::Error,
> {
    if config.proxy_url.is_some() {
        // This build has no support for proxies, and the error says so.
        ClientBuilder::try_from(config.clone()).map(drop)?;
    }
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("5spot/", env!("CARGO_PKG_VERSION")))));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp(resolver))?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_read_timeout(Some(READ_TIMEOUT));
    connector.set_reset_reader_on_write(true);
    Ok(ServiceBuilder::new()
        .layer(CountRequestsLayer { metrics: Arc::clone(metrics) })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(
            hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .http1_max_buf_size(MAX_BUFFER)
                .build::<_, Body>(connector),
        ))
}

fn tcp(resolver: Resolver) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_TIME));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    tcp
}

struct CountRequestsLayer {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for CountRequestsLayer {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        CountRequests { inner, metrics: Arc::clone(&self.metrics) }
    }
}

#[derive(Clone)]
struct CountRequests<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for CountRequests<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = Arc::clone(&self.metrics);
        let verb = verb(request.method(), request.uri().query());
        let resource = resource(request.uri().path());
        let span = request_span(verb, resource);
        let response = self.inner.call(request).instrument(span.clone());
        Box::pin(async move {
            let response = response.await;
            let code = response.as_ref().map_or_else(|_| "none".to_owned(), |it| code(it.status()));
            span.record("code", &code);
            tracing::debug!(verb, resource, code, "Sent request");
            metrics.record_request(verb, resource, code);
            response
        })
    }
}

fn verb(method: &Method, query: Option<&str>) -> &'static str {
    match method.as_str() {
        "GET" if is_watch(query) => "watch",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// A server can send any number: only those that HTTP defines become a label value.
fn code(status: StatusCode) -> String {
    if status.canonical_reason().is_some() { status.as_u16().to_string() } else { "other".to_owned() }
}

/// The resources that requests are counted by, with their subresources.
const RESOURCES: [&str; 11] = [
    "clusters",
    "configmaps",
    "events",
    "leases",
    "machines",
    "nodes",
    "pods",
    "pods/eviction",
    "scheduledmachines",
    "scheduledmachines/status",
    "secrets",
];

/// Plural and subresource of a path. Only known ones become a label value: provider kinds are `other`, and parts of a path
/// can come from a tenant.
fn resource(path: &str) -> &'static str {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // /api/v1/… and /apis/<group>/<version>/…
    let prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
    parts.drain(..prefix.min(parts.len()));
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    let known = |name: &str| RESOURCES.into_iter().find(|it| *it == name).unwrap_or("other");
    match parts.as_slice() {
        [] => "discovery",
        [plural] | [plural, _] => known(plural),
        [plural, _, subresource, ..] => known(&format!("{plural}/{subresource}")),
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn path_is_counted_by_resource() {
        for (path, expected) in [
            ("/api/v1/nodes", "nodes"),
            ("/api/v1/nodes/n1", "nodes"),
            ("/api/v1/namespaces/team/pods/p/eviction", "pods/eviction"),
            ("/apis/cluster.x-k8s.io/v1beta2/machines", "machines"),
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines/m", "machines"),
            ("/apis/5spot.finos.org/v1alpha1/namespaces/a/scheduledmachines/m/status", "scheduledmachines/status"),
            ("/apis/cluster.x-k8s.io/v1beta2", "discovery"),
            ("/apis", "discovery"),
            ("/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/a/remotemachines/m", "other"),
            ("/apis/infrastructure.cluster.x-k8s.io/v1/a/b/forged", "other"),
            ("/api/v1/nodes/x/forged", "other"),
            ("/api/v1/namespaces/a/secrets/b/forged", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    /// The options of a real socket: whatever sets them, a dead connection is closed within 30 s.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn dead_connection_is_noticed_within_30_seconds() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let connection = tcp(Resolver::of_management_cluster()).oneshot(url).await.unwrap();
        let socket = socket2::SockRef::from(connection.inner());
        assert!(socket.keepalive().unwrap());
        let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        let idle = socket.tcp_keepalive_time().unwrap() + probes;
        assert!(idle <= Duration::from_secs(30), "a connection on which nothing is sent: {idle:?}");
        let unacknowledged = socket.tcp_user_timeout().unwrap().expect("a timeout of sent data");
        assert!(unacknowledged <= Duration::from_secs(30), "{unacknowledged:?}");
    }

    #[test]
    fn unknown_status_is_counted_as_other() {
        let label = |status: u16| code(StatusCode::from_u16(status).unwrap());
        assert_eq!([200, 429, 599, 999].map(label), ["200", "429", "other", "other"]);
    }

    #[test]
    fn watch_is_not_counted_as_get() {
        assert_eq!(verb(&Method::GET, Some("limit=500&watch=true")), "watch");
        assert_eq!(verb(&Method::GET, Some("limit=500")), "get");
    }
}
