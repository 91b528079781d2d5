//! Health, log level and metrics over HTTP, on a thread of their own, so that they respond even if the event loop is stuck.
//!
//! Every client that reaches a port may connect, so connections are limited in number and time. When there are too many, the
//! oldest one is closed: a client that keeps connections open cannot keep the kubelet or Prometheus out. Only a client on the
//! loopback interface, such as `kubectl port-forward`, may change something.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use axum::{Extension, Router};
use fivespot_cli_support::Failure;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::runtime::health::Health;
use crate::runtime::metrics::Metrics;
use crate::telemetry::LogFilter;

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    header_timeout: Duration::from_secs(5),
    total_timeout: Duration::from_secs(10),
};
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;
const MAX_FILTER_BYTES: usize = 4 * 1024;
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What clients of one port may use.
#[derive(Clone, Copy)]
struct ConnectionLimits {
    connections: usize,
    /// How long a client may take to send the headers of its request.
    header_timeout: Duration,
    /// How long a connection may take in all. It serves one request.
    total_timeout: Duration,
}

/// Serves both ports until the process ends.
pub(crate) fn serve(
    (health_port, metrics_port): (u16, u16),
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    log_filter: LogFilter,
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
    let health = health_router(health).merge(log_router(log_filter));
    let metrics = metrics_router(metrics);
    std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::join!(
                    serve_port(health_listener, health, LIMITS),
                    serve_port(metrics_listener, metrics, LIMITS)
                );
            });
        })
        .map_err(cannot_start)?;
    Ok(())
}

async fn serve_port(listener: TcpListener, router: Router, limits: ConnectionLimits) {
    let mut connections = VecDeque::new();
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            // Without a free file descriptor the next attempt would fail immediately.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        connections.retain(|connection: &AbortOnDropHandle<()>| !connection.is_finished());
        if connections.len() >= limits.connections {
            // Dropping the handle closes the connection.
            connections.pop_front();
        }
        let router = router.clone().layer(Extension(ClientAddress(client)));
        connections.push_back(AbortOnDropHandle::new(tokio::spawn(serve_connection(stream, router, limits))));
        // A request that has arrived is answered before so many others are accepted that its connection is closed.
        tokio::task::yield_now().await;
    }
}

async fn serve_connection(stream: TcpStream, router: Router, limits: ConnectionLimits) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .keep_alive(false)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that disconnects is not an error.
    let _ = tokio::time::timeout(limits.total_timeout, connection).await;
}

fn health_router(health: &Arc<Health>) -> Router {
    let response = |result: Result<(), String>| match result {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    };
    let alive = Arc::clone(health);
    let alive =
        get(async move || response(if alive.is_alive() { Ok(()) } else { Err("event loop is stuck\n".to_owned()) }));
    let ready = Arc::clone(health);
    let ready = get(async move || response(ready.readiness()));
    Router::new()
        .route("/health", alive.clone())
        .route("/healthz", alive)
        .route("/ready", ready.clone())
        .route("/readyz", ready)
}

/// Who sent a request.
#[derive(Clone, Copy, Debug)]
struct ClientAddress(SocketAddr);

/// Reads and changes what is logged.
fn log_router(filter: LogFilter) -> Router {
    let filter = Arc::new(filter);
    let current = Arc::clone(&filter);
    let read = async move || format!("{}\n", current.current());
    let change = async move |Extension(client): Extension<ClientAddress>, request: Request| {
        change_log_filter(&filter, client, request).await
    };
    Router::new().route("/loglevel", get(read).put(change))
}

async fn change_log_filter(
    filter: &LogFilter,
    ClientAddress(client): ClientAddress,
    request: Request,
) -> (StatusCode, String) {
    if !client.ip().to_canonical().is_loopback() {
        let text = "only clients on the loopback interface may change the log filter; use kubectl port-forward\n";
        return (StatusCode::FORBIDDEN, text.to_owned());
    }
    let Ok(body) = to_bytes(request.into_body(), MAX_FILTER_BYTES).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, format!("a filter has at most {MAX_FILTER_BYTES} bytes\n"));
    };
    match filter.set(&String::from_utf8_lossy(&body)) {
        Ok(()) => (StatusCode::OK, format!("{}\n", filter.current())),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

fn metrics_router(metrics: &Arc<Metrics>) -> Router {
    let metrics = Arc::clone(metrics);
    Router::new().route("/metrics", get(async move || ([(CONTENT_TYPE, OPENMETRICS)], metrics.render())))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as Client;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    const NEVER: Duration = Duration::from_hours(1);
    const UNLIMITED: ConnectionLimits =
        ConnectionLimits { connections: 1000, header_timeout: NEVER, total_timeout: NEVER };
    const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

    /// Serves `/health` on a free port while `client` runs, which gets the address.
    async fn while_serving<T>(limits: ConnectionLimits, client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/health", get(async || "ok\n"));
        tokio::select! {
            () = serve_port(listener, router, limits) => unreachable!("ports are served until the process ends"),
            result = client(address) => result,
            // Less than the timeouts that hyper has by default.
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("a connection stays open"),
        }
    }

    /// Whether the server closes the connection, and nothing else happens on it.
    async fn is_closed(connection: &mut TcpStream) -> bool {
        matches!(connection.read(&mut [0]).await, Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn oldest_connection_is_closed_for_a_new_one() {
        while_serving(ConnectionLimits { connections: 2, ..UNLIMITED }, async |address| {
            let mut oldest = TcpStream::connect(address).await.unwrap();
            let other = TcpStream::connect(address).await.unwrap();
            let newest = TcpStream::connect(address).await.unwrap();
            assert!(is_closed(&mut oldest).await);
            for connection in [other, newest] {
                let error = connection.try_read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
        })
        .await;
    }

    #[tokio::test]
    async fn silent_connection_is_closed_by_each_timeout() {
        let short = Duration::from_millis(10);
        for limits in [
            ConnectionLimits { header_timeout: short, ..UNLIMITED },
            ConnectionLimits { total_timeout: short, ..UNLIMITED },
        ] {
            while_serving(limits, async |address| {
                let mut silent = TcpStream::connect(address).await.unwrap();
                assert!(is_closed(&mut silent).await);
            })
            .await;
        }
    }

    /// One thread, as in the process: the kernel has accepted all connections before the server accepts the first one.
    #[tokio::test]
    async fn flood_of_connections_is_answered() {
        const FLOOD: usize = 100;
        let limits = ConnectionLimits { connections: 16, ..UNLIMITED };
        while_serving(limits, async |address| {
            let mut clients: Vec<Client> = (0..FLOOD).map(|_| Client::connect(address).unwrap()).collect();
            for client in &mut clients {
                client.write_all(REQUEST).unwrap();
            }
            let responses = tokio::task::spawn_blocking(move || {
                let response = |mut client: Client| {
                    let mut response = String::new();
                    client.read_to_string(&mut response).map(|_| response).unwrap_or_default()
                };
                clients.into_iter().map(response).collect::<Vec<_>>()
            })
            .await
            .unwrap();
            let answered = responses.iter().filter(|it| it.starts_with("HTTP/1.1 200")).count();
            assert_eq!(answered, FLOOD);
        })
        .await;
    }

    #[tokio::test]
    async fn only_loopback_clients_change_the_log_filter() {
        let filter = LogFilter::for_test("info");
        let put = async |client: &str, body: String| {
            let client = ClientAddress(client.parse().unwrap());
            change_log_filter(&filter, client, Request::new(body.into())).await.0
        };
        for client in ["10.0.0.7:1", "[fd00::7]:1", "[::ffff:10.0.0.7]:1", "0.0.0.0:1"] {
            assert_eq!(put(client, "debug".to_owned()).await, StatusCode::FORBIDDEN, "{client}");
        }
        assert_eq!(put("127.0.0.1:1", "x".repeat(MAX_FILTER_BYTES + 1)).await, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(put("127.0.0.1:1", "inof".to_owned()).await, StatusCode::BAD_REQUEST);
        assert_eq!(filter.current(), "info");
        for (client, change) in [("127.0.0.1:1", "debug"), ("[::1]:1", "warn"), ("[::ffff:127.0.0.1]:1", "trace")] {
            assert_eq!(put(client, change.to_owned()).await, StatusCode::OK, "{client}");
            assert_eq!(filter.current(), change);
        }
        assert_eq!((put("127.0.0.1:1", "\n".to_owned()).await, filter.current()), (StatusCode::OK, "info".to_owned()));
    }
}
