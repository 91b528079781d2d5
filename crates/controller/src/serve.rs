//! Health and metrics over HTTP, on a thread of their own: they have to answer when nothing else does.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use fivespot_cli_support::Failure;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// How long the event loop may be silent before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How often it makes itself heard.
pub(crate) const PULSE: Duration = Duration::from_secs(5);

/// How the process is.
pub(crate) struct Health {
    started: Instant,
    /// Milliseconds after the start at which the event loop was last heard of.
    pulse: AtomicU64,
    ready: AtomicBool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Health { started: Instant::now(), pulse: AtomicU64::new(0), ready: AtomicBool::new(false) }
    }

    /// The event loop goes round.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.pulse.store(now, Ordering::Release);
    }

    /// Whether everything that there is has been heard of.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    fn is_alive(&self) -> bool {
        let last = Duration::from_millis(self.pulse.load(Ordering::Acquire));
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| Failure::failed("cannot start the thread for health and metrics", &error))?;
    let bind = |port: u16, flag: &str| {
        // Both families; a host without IPv6 has the other.
        let any = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        runtime.block_on(TcpListener::bind(&any[..])).map_err(|error| {
            Failure::bad_input(format!(
                "cannot listen on port {port}: {error}; choose another with {flag}, or 0 for any"
            ))
        })
    };
    let (for_health, for_metrics) = (bind(health_port, "--health-port")?, bind(metrics_port, "--metrics-port")?);
    for (what, listener) in [("health", &for_health), ("metrics", &for_metrics)] {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(what, port = address.port(), "listening");
        }
    }
    let (health, metrics) = (health_router(health), metrics_router(metrics));
    std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let (health, metrics) = (axum::serve(for_health, health), axum::serve(for_metrics, metrics));
                let _ = tokio::join!(health.into_future(), metrics.into_future());
            });
        })
        .map_err(|error| Failure::failed("cannot start the thread for health and metrics", &error))?;
    Ok(())
}

fn health_router(health: &Arc<Health>) -> Router {
    let answer = |good: bool, bad: &'static str| {
        if good { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, bad) }
    };
    let alive = Arc::clone(health);
    let alive = get(async move || answer(alive.is_alive(), "the event loop is stuck\n"));
    let ready = Arc::clone(health);
    let ready = get(async move || answer(ready.is_ready(), "not everything has been heard of yet\n"));
    Router::new()
        .route("/health", alive.clone())
        .route("/healthz", alive)
        .route("/ready", ready.clone())
        .route("/readyz", ready)
}

fn metrics_router(metrics: &Arc<Metrics>) -> Router {
    let metrics = Arc::clone(metrics);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Router::new().route("/metrics", get(async move || ([(CONTENT_TYPE, kind)], metrics.page())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_was_not_heard_of_for_long_is_stuck() {
        let long_ago = Instant::now().checked_sub(STUCK_AFTER * 2).unwrap();
        let health = Health { started: long_ago, ..Health::new() };
        assert!(!health.is_alive());
        health.beat();
        assert!(health.is_alive());
    }
}
