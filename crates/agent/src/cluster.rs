//! The way to the API server.
//!
//! One HTTP/2 connection carries all requests. The watch keeps it open, so the request that matters finds it warm, however
//! long nothing has happened.

use std::time::Duration;

use fivespot_cli_support::{Failure, chain};
use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::ServiceBuilder;

/// How long the beginning of an answer may take. A watch answers at once and then goes on.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection that has been quiet for so long is asked whether somebody is still behind it, and so long is waited for an
/// answer. Without it a watch that nobody serves any more looks like one that has nothing to tell.
const QUIET: Duration = Duration::from_secs(30);
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// What was sent and is not acknowledged for so long will not be: the connection is given up.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Where the API server is, and who we are to it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    config: Config,
}

impl Cluster {
    /// By `KUBECONFIG`, or from inside a pod.
    pub(crate) async fn infer() -> Result<Self, Failure> {
        let mut config = Config::infer().await.map_err(|error| {
            let reason = chain(&error);
            Failure::bad_input(format!("no cluster to speak to: {reason}; set KUBECONFIG, or run in a cluster"))
        })?;
        if let Some(name) = &config.tls_server_name
            && let Err(error) = server_name(name.clone())
        {
            return Err(Failure::bad_input(format!("tls-server-name '{name}' of the kubeconfig: {error}")));
        }
        let name = concat!("5spot-reclaim-agent/", env!("CARGO_PKG_VERSION"));
        config.headers.push((USER_AGENT, HeaderValue::from_static(name)));
        Ok(Cluster { config })
    }

    /// A client with a connection of its own. It repeats nothing by itself: when to try again is decided elsewhere.
    pub(crate) fn client(&self) -> Result<Client, kube::Error> {
        let config = &self.config;
        let mut tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
        // A name that is none has been refused by then.
        if let Some(Ok(name)) = config.tls_server_name.clone().map(server_name) {
            tls = tls.with_server_name_resolver(name);
        }
        let connector = tls.enable_all_versions().wrap_connector(tcp());
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            // It would forget a connection that the watch still uses.
            .pool_idle_timeout(None)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(QUIET)
            .http2_keep_alive_timeout(SIGN_OF_LIFE)
            .build::<_, Body>(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .timeout(ANSWER)
            .map_err(tower::BoxError::from)
            .service(client);
        Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
    }
}

fn server_name(name: String) -> Result<FixedServerNameResolver, impl std::error::Error> {
    name.try_into().map(FixedServerNameResolver::new)
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(QUIET));
    tcp.set_keepalive_interval(Some(SIGN_OF_LIFE));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}
