//! Clients for the API server.
//!
//! One HTTP/2 connection carries all requests. The watch keeps it open, so the reclaim request finds it warm however long
//! nothing has happened (docs/adr/0011).

use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Response};
use http_body_util::Limited;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::InferConfigError;
use kube::{Client, Config};
use tower::ServiceBuilder;

/// Limit for the response headers. The time of the body is not limited: that of a watch stays open.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// More than the largest Node or ConfigMap that etcd stores. A watch that exceeds it starts again. A response may come from a
/// proxy, or from another server at that address.
const MAX_BODY_BYTES: usize = 4 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection is pinged after this long, and closed without a reply, so that a dead connection is noticed within 30 s.
/// Without pings, a watch whose server has disappeared looks like one without events.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The connection is closed if sent data is not acknowledged for this long (`TCP_USER_TIMEOUT`).
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientConfigError {
    #[error("cannot find a cluster: {0}; set KUBECONFIG or run in a pod")]
    Infer(#[from] InferConfigError),
    #[error("invalid tls-server-name {name:?} in the kubeconfig: {source}")]
    TlsServerName { name: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Creates clients with a connection of their own.
#[derive(Clone, Debug)]
pub(crate) struct ClientFactory {
    config: Config,
}

impl ClientFactory {
    /// Configured by `KUBECONFIG` or the pod's service account.
    pub(crate) async fn infer() -> Result<Self, ClientConfigError> {
        let mut config = Config::infer().await?;
        if let Some(name) = &config.tls_server_name
            && let Err(error) = server_name(name.clone())
        {
            return Err(ClientConfigError::TlsServerName { name: name.clone(), source: error.into() });
        }
        let user_agent = concat!("5spot-reclaim-agent/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
        Ok(ClientFactory { config })
    }

    /// The client does not retry; the callers do.
    pub(crate) fn new_client(&self) -> Result<Client, kube::Error> {
        let config = &self.config;
        let mut tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
        // `infer` has rejected invalid names.
        if let Some(Ok(name)) = config.tls_server_name.clone().map(server_name) {
            tls = tls.with_server_name_resolver(name);
        }
        let connector = tls.enable_all_versions().wrap_connector(tcp());
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            // The pool measures idle time from the last request and would drop the connection that the watch uses.
            .pool_idle_timeout(None)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .http2_keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .build::<_, Body>(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .timeout(RESPONSE_TIMEOUT)
            .map_err(tower::BoxError::from)
            .map_response(|response: Response<_>| response.map(|body| Limited::new(body, MAX_BODY_BYTES)))
            .service(client);
        Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
    }
}

fn server_name(name: String) -> Result<FixedServerNameResolver, impl std::error::Error + Send + Sync + 'static> {
    name.try_into().map(FixedServerNameResolver::new)
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_interval(Some(KEEPALIVE_TIMEOUT));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    tcp
}
