//! Clients of API servers that count their requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use tower::util::BoxService;
use tower::{BoxError, Layer, Service};

use crate::runtime::metrics::Metrics;
use crate::runtime::response_limits::{ResponseLimits, is_watch};

/// Creates a client that counts its requests. It does not retry: a 429 is also how a `PodDisruptionBudget` blocks an
/// eviction, and the reconciler decides when to retry.
pub(crate) fn client(config: Config, metrics: &Arc<Metrics>) -> Result<Client, kube::Error> {
    Ok(builder(config)?.with_layer(&CountRequestsLayer { metrics: Arc::clone(metrics) }).build())
}

/// Creates a client for a workload cluster, whose API server belongs to a tenant: its responses are limited.
pub(crate) fn workload_client(
    config: Config,
    metrics: &Arc<Metrics>,
    limits: &ResponseLimits,
) -> Result<Client, kube::Error> {
    let metrics = CountRequestsLayer { metrics: Arc::clone(metrics) };
    Ok(builder(config)?.with_layer(limits).with_layer(&metrics).build())
}

fn builder(mut config: Config) -> Result<ClientBuilder<GenericService>, kube::Error> {
    config.default_retry = false;
    // A watch is silent for at most 290 s; a connection that is silent for longer is dead.
    config.read_timeout = Some(Duration::from_secs(310));
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("5spot/", env!("CARGO_PKG_VERSION")))));
    ClientBuilder::try_from(config)
}

/// The service that [`ClientBuilder`] creates from a configuration.
type GenericService = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

struct CountRequestsLayer {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for CountRequestsLayer {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        CountRequests { inner, metrics: Arc::clone(&self.metrics) }
    }
}

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
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            let code = response.as_ref().map_or_else(|_| "none".to_owned(), |it| code(it.status()));
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

/// Plural and subresource of a path: few label values, whatever the objects are called.
fn resource(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // /api/v1/… and /apis/<group>/<version>/…
    let prefix = if parts.first() == Some(&"api") { 2 } else { 3 };
    parts.drain(..prefix.min(parts.len()));
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    match parts.as_slice() {
        [] => "discovery".to_owned(),
        [plural] | [plural, _] => (*plural).to_owned(),
        [plural, _, subresource, ..] => format!("{plural}/{subresource}"),
    }
}

#[cfg(test)]
mod tests {
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
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
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
