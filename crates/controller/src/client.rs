//! Clients of API servers, each request counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// A client that counts its requests. It does not repeat any by itself: a 429 is also how a disruption budget says no, and
/// when to try again is decided elsewhere.
pub(crate) fn client(mut config: Config, metrics: &Arc<Metrics>) -> Result<Client, kube::Error> {
    config.default_retry = false;
    // Longer than a watch is quiet, so that nothing waits for ever on a connection that nobody is behind any more.
    config.read_timeout = Some(Duration::from_secs(310));
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("5spot/", env!("CARGO_PKG_VERSION")))));
    Ok(ClientBuilder::try_from(config)?.with_layer(&Counting { metrics: Arc::clone(metrics) }).build())
}

struct Counting {
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, metrics: Arc::clone(&self.metrics) }
    }
}

struct Counted<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
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
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or_else(|_| "none".to_owned(), |it| it.status().as_u16().to_string());
            metrics.requested(verb, resource, code);
            answer
        })
    }
}

fn verb(method: &Method, query: Option<&str>) -> &'static str {
    let watches = query.is_some_and(|it| it.split('&').any(|it| it == "watch=true"));
    match method.as_str() {
        "GET" if watches => "watch",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// The plural, and the subresource if there is one: few values, whatever objects are called.
fn resource(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
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
    fn a_path_is_counted_by_its_resource() {
        for (path, counted) in [
            ("/api/v1/nodes", "nodes"),
            ("/api/v1/nodes/n1", "nodes"),
            ("/api/v1/namespaces/team/pods/p/eviction", "pods/eviction"),
            ("/apis/cluster.x-k8s.io/v1beta2/machines", "machines"),
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines/m", "machines"),
            ("/apis/5spot.finos.org/v1alpha1/namespaces/a/scheduledmachines/m/status", "scheduledmachines/status"),
            ("/apis/cluster.x-k8s.io/v1beta2", "discovery"),
        ] {
            assert_eq!(resource(path), counted, "{path}");
        }
    }

    #[test]
    fn a_watch_is_not_a_get() {
        assert_eq!(verb(&Method::GET, Some("limit=500&watch=true")), "watch");
        assert_eq!(verb(&Method::GET, Some("limit=500")), "get");
    }
}
