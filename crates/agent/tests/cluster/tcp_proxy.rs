//! A TCP proxy in front of the API server that can turn into a black hole: it accepts connections and data and forwards
//! nothing, as if a cable were unplugged. Connections that existed or were opened meanwhile stay dead.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) struct TcpProxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    is_black_hole: AtomicBool,
    became_black_hole: Notify,
    close: Notify,
    forwarded: AtomicUsize,
}

impl TcpProxy {
    pub(crate) async fn in_front_of(server: &str) -> Self {
        TcpProxy::on(Ipv4Addr::LOCALHOST, server).await
    }

    /// Listens on this address.
    pub(crate) async fn on(address: Ipv4Addr, server: &str) -> Self {
        let server = server.strip_prefix("https://").unwrap().to_owned();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(forward(stream, server.clone(), Arc::clone(&shared)));
            }
        });
        TcpProxy { address, state, task }
    }

    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn black_hole(&self) {
        self.state.is_black_hole.store(true, Ordering::SeqCst);
        self.state.became_black_hole.notify_waiters();
    }

    /// Forwards new connections again.
    pub(crate) fn restore(&self) {
        self.state.is_black_hole.store(false, Ordering::SeqCst);
    }

    /// Closes all connections, as a server does that is replaced.
    pub(crate) fn close_connections(&self) {
        self.state.close.notify_waiters();
    }

    /// How many connections were forwarded to the server.
    pub(crate) fn forwarded(&self) -> usize {
        self.state.forwarded.load(Ordering::SeqCst)
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut stream: TcpStream, server: String, state: Arc<State>) {
    let became_black_hole = state.became_black_hole.notified();
    tokio::pin!(became_black_hole);
    became_black_hole.as_mut().enable();
    if !state.is_black_hole.load(Ordering::SeqCst) {
        let mut upstream = TcpStream::connect(server).await.unwrap();
        state.forwarded.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            _ = copy_bidirectional(&mut stream, &mut upstream) => return,
            () = state.close.notified() => return,
            () = became_black_hole => {}
        }
    }
    // Stays open and is never read again.
    std::future::pending::<()>().await;
}
