//! Health and metrics over HTTP, on a thread of their own, so that they respond even if the event loop is stuck.
//!
//! Every client that reaches a port may connect, so connections are limited in number and time. When there are too many, the
//! oldest one is closed: a client that keeps connections open cannot keep the kubelet or Prometheus out.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use fivespot_cli_support::Failure;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::runtime::metrics::Metrics;

/// How long after its last heartbeat the event loop counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How often the event loop calls [`Health::heartbeat`].
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Connections of one port.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the headers of its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take in all. It serves one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) struct Health {
    started: Instant,
    /// Milliseconds from the start to the last heartbeat.
    last_heartbeat: AtomicU64,
    ready: AtomicBool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Health { started: Instant::now(), last_heartbeat: AtomicU64::new(0), ready: AtomicBool::new(false) }
    }

    pub(crate) fn heartbeat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_heartbeat.store(now, Ordering::Release);
    }

    /// Ready means that the caches are synced and the process is not shutting down.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    fn is_alive(&self) -> bool {
        let last = Duration::from_millis(self.last_heartbeat.load(Ordering::Acquire));
        self.started.elapsed().saturating_sub(last) < STUCK_AFTER
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

/// Serves both ports until the process ends.
pub(crate) fn serve(
    (health_port, metrics_port): (u16, u16),
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
) -> Result<(), Failure> {
    let cannot_start = |error: std::io::Error| Failure::failed("cannot start the HTTP server", &error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
    let bind = |port: u16, flag: &str| {
        // All addresses; IPv4 alone on a host without IPv6.
        let any = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        runtime.block_on(TcpListener::bind(&any[..])).map_err(|error| {
            Failure::bad_input(format!(
                "cannot listen on port {port}: {error}; choose another port with {flag}, or 0 for any free port"
            ))
        })
    };
    let health_listener = bind(health_port, "--health-port")?;
    let metrics_listener = bind(metrics_port, "--metrics-port")?;
    for (endpoint, listener) in [("health", &health_listener), ("metrics", &metrics_listener)] {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(endpoint, port = address.port(), "Listening");
        }
    }
    let (health, metrics) = (health_router(health), metrics_router(metrics));
    std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::join!(serve_port(health_listener, health), serve_port(metrics_listener, metrics));
            });
        })
        .map_err(cannot_start)?;
    Ok(())
}

async fn serve_port(listener: TcpListener, router: Router) {
    let mut connections = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Without a free file descriptor the next attempt would fail immediately.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.retain(|connection: &AbortOnDropHandle<()>| !connection.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            // Dropping the handle closes the connection.
            connections.pop_front();
        }
        connections.push_back(AbortOnDropHandle::new(tokio::spawn(serve_connection(stream, router.clone()))));
    }
}

async fn serve_connection(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that disconnects is not an error.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

fn health_router(health: &Arc<Health>) -> Router {
    let response = |ok: bool, otherwise: &'static str| {
        if ok { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, otherwise) }
    };
    let alive = Arc::clone(health);
    let alive = get(async move || response(alive.is_alive(), "event loop is stuck\n"));
    let ready = Arc::clone(health);
    let ready = get(async move || response(ready.is_ready(), "not ready: starting or shutting down\n"));
    Router::new()
        .route("/health", alive.clone())
        .route("/healthz", alive)
        .route("/ready", ready.clone())
        .route("/readyz", ready)
}

fn metrics_router(metrics: &Arc<Metrics>) -> Router {
    let metrics = Arc::clone(metrics);
    Router::new().route("/metrics", get(async move || ([(CONTENT_TYPE, OPENMETRICS)], metrics.render())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_heartbeat_means_stuck() {
        let long_ago = Instant::now().checked_sub(STUCK_AFTER * 2).unwrap();
        let health = Health { started: long_ago, ..Health::new() };
        assert!(!health.is_alive());
        health.heartbeat();
        assert!(health.is_alive());
    }
}
