//! Accepts connections and forwards requests.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, oneshot};
use tokio_rustls::TlsAcceptor;

use super::faults::{Epoch, Faults, Rejection, ResponseAction, Sender, Write, is_counted_write, is_from_counted_agent};
use crate::access::Access;
use crate::certificates::Identity;
use crate::tls::acceptor;

/// Serves on this thread until `stopped`. It is the only thread, so nothing is forwarded while a process is being killed.
pub(super) fn run(
    listener: TcpListener,
    identity: &Identity,
    upstream: &Access,
    faults: &Arc<Faults>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime can be built");
    runtime.block_on(async {
        let connector =
            upstream.config().rustls_https_connector().expect("a generated certificate makes a valid connector");
        let upstream = Arc::new(Upstream {
            client: Client::builder(TokioExecutor::new()).build(connector),
            server: upstream.server().trim_start_matches("https://").parse().expect("an address is an authority"),
            faults: Arc::clone(faults),
            turn: Mutex::default(),
        });
        tokio::select! {
            () = accept(listener, acceptor(identity), upstream) => {}
            _ = stopped => {}
        }
    });
}

async fn accept<C>(listener: TcpListener, tls: TlsAcceptor, upstream: Arc<Upstream<C>>)
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener does not block");
    while let Ok((stream, _)) = listener.accept().await {
        // Errors are those of the client: it disconnected, or rejected the certificate.
        tokio::spawn(serve(stream, tls.clone(), Arc::clone(&upstream)));
    }
}

async fn serve<C>(stream: TcpStream, tls: TlsAcceptor, upstream: Arc<Upstream<C>>) -> io::Result<()>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let epoch = upstream.faults.epoch();
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    let service = service_fn(|request| upstream.forward(request, epoch));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}

/// The response of the API server, or of the proxy itself.
type Body = Either<Incoming, Full<Bytes>>;

/// The API server behind the proxy.
struct Upstream<C> {
    client: Client<C, Incoming>,
    server: Authority,
    faults: Arc<Faults>,
    /// Held during a write, so that writes are forwarded one at a time.
    turn: Mutex<()>,
}

impl<C> Upstream<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    /// Forwards a request with all its headers, and streams the response. An error closes the connection without a
    /// response.
    async fn forward(&self, request: Request<Incoming>, epoch: Epoch) -> io::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let (counted_agent, write) = (is_from_counted_agent(&parts), is_counted_write(&parts));
        let path = parts.uri.path().to_owned();
        let method = parts.method.clone();
        let mut uri = parts.uri.into_parts();
        (uri.scheme, uri.authority) = (Some(Scheme::HTTPS), Some(self.server.clone()));
        parts.uri = Uri::from_parts(uri).map_err(io::Error::other)?;

        let _turn = if write { Some(self.turn.lock().await) } else { None };
        if write {
            self.faults.hold_next_request().await;
        }
        self.check_epoch(counted_agent, epoch)?;
        if write && let Some(rejection) = self.faults.take_rejection() {
            self.faults.record(Write { method, path, status: rejection.status });
            return rejection_response(rejection).map_err(io::Error::other);
        }
        let response = self.client.request(Request::from_parts(parts, body)).await.map_err(io::Error::other)?;
        if write {
            match self.faults.record(Write { method, path, status: response.status() }) {
                ResponseAction::Forward => {}
                ResponseAction::Drop => return Err(io::Error::other("response dropped")),
                ResponseAction::Hold => self.faults.released().await,
            }
        }
        self.check_epoch(counted_agent, epoch)?;
        Ok(response.map(Either::Left))
    }

    /// Fails if the client of this connection was killed.
    fn check_epoch(&self, counted_agent: bool, epoch: Epoch) -> io::Result<()> {
        let killed = counted_agent && self.faults.epoch() != epoch;
        if killed { Err(io::Error::other("client was killed")) } else { Ok(()) }
    }
}

fn rejection_response(rejection: Rejection) -> Result<Response<Body>, http::Error> {
    let mut response = Response::builder().status(rejection.status);
    if let Some(seconds) = rejection.retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    match rejection.sender {
        Sender::Server => response.body(Either::Right(Full::from("not now\n"))),
        Sender::Webhook => {
            let status = serde_json::json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "not now",
                "reason": "TooManyRequests",
                "details": { "retryAfterSeconds": rejection.retry_after },
                "code": rejection.status.as_u16(),
            });
            let response = response.header(CONTENT_TYPE, "application/json");
            response.body(Either::Right(Full::from(status.to_string())))
        }
    }
}
