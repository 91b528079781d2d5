//! Taking requests in, and passing them on.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http::header::RETRY_AFTER;
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

use super::ledger::{Answer, Ledger, Life, Refusal, Write, counts, is_ours};
use crate::access::Access;
use crate::certificates::Identity;
use crate::tls::acceptor;

/// Serves on this thread until `stopped`. It is the only thread, so nothing is passed on while a process is being killed.
pub(super) fn run(
    listener: TcpListener,
    identity: &Identity,
    upstream: &Access,
    ledger: &Arc<Ledger>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread can be made");
    runtime.block_on(async {
        let connector =
            upstream.config().rustls_https_connector().expect("our own certificate makes a valid connector");
        let way = Arc::new(Way {
            client: Client::builder(TokioExecutor::new()).build(connector),
            server: upstream.server().trim_start_matches("https://").parse().expect("an address is an authority"),
            ledger: Arc::clone(ledger),
            turn: Mutex::default(),
        });
        tokio::select! {
            () = accept(listener, acceptor(identity), way) => {}
            _ = stopped => {}
        }
    });
}

async fn accept<C>(listener: TcpListener, tls: TlsAcceptor, way: Arc<Way<C>>)
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener does not block");
    while let Ok((stream, _)) = listener.accept().await {
        // A client that goes away, or that does not trust us, is its own business.
        tokio::spawn(serve(stream, tls.clone(), Arc::clone(&way)));
    }
}

async fn serve<C>(stream: TcpStream, tls: TlsAcceptor, way: Arc<Way<C>>) -> io::Result<()>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let life = way.ledger.life();
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    let service = service_fn(|request| way.pass_on(request, life));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}

/// What the API server answers, or the proxy by itself.
type Body = Either<Incoming, Full<Bytes>>;

/// The way to the API server.
struct Way<C> {
    client: Client<C, Incoming>,
    server: Authority,
    ledger: Arc<Ledger>,
    /// Whose turn it is to write.
    turn: Mutex<()>,
}

impl<C> Way<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    /// Passes a request on, with all its headers, and gives the answer, as it comes. An error ends the connection
    /// without one.
    async fn pass_on(&self, request: Request<Incoming>, life: Life) -> io::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let (ours, write) = (is_ours(&parts), counts(&parts));
        let path = parts.uri.path().to_owned();
        let method = parts.method.clone();
        let mut uri = parts.uri.into_parts();
        (uri.scheme, uri.authority) = (Some(Scheme::HTTPS), Some(self.server.clone()));
        parts.uri = Uri::from_parts(uri).map_err(io::Error::other)?;

        let _turn = if write { Some(self.turn.lock().await) } else { None };
        if write {
            self.ledger.next_may_go().await;
        }
        self.still_alive(ours, life)?;
        if write && let Some(refusal) = self.ledger.refusal_of_next() {
            self.ledger.record(Write { method, path, status: refusal.status });
            return refused(refusal).map_err(io::Error::other);
        }
        let answer = self.client.request(Request::from_parts(parts, body)).await.map_err(io::Error::other)?;
        if write {
            match self.ledger.record(Write { method, path, status: answer.status() }) {
                Answer::Given => {}
                Answer::Lost => return Err(io::Error::other("the answer is lost")),
                Answer::Held => self.ledger.released().await,
            }
        }
        self.still_alive(ours, life)?;
        Ok(answer.map(Either::Left))
    }

    fn still_alive(&self, ours: bool, life: Life) -> io::Result<()> {
        let dead = ours && self.ledger.life() != life;
        if dead { Err(io::Error::other("it has been killed")) } else { Ok(()) }
    }
}

/// A few words and no more, as from a load balancer.
fn refused(refusal: Refusal) -> Result<Response<Body>, http::Error> {
    let mut answer = Response::builder().status(refusal.status);
    if let Some(seconds) = refusal.retry_after {
        answer = answer.header(RETRY_AFTER, seconds);
    }
    answer.body(Either::Right(Full::from("not now\n")))
}
