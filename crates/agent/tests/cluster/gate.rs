//! A gate before the API server. While it is shut, it takes connections and bytes and passes nothing on, and whoever came
//! then, or was inside, never gets anywhere: as with a cable that is pulled.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(crate) struct Gate {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    shut: AtomicBool,
    shutting: Notify,
    cutting: Notify,
}

impl Gate {
    pub(crate) async fn before(server: &str) -> Self {
        let server = server.strip_prefix("https://").unwrap().to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(pass(stream, server.clone(), Arc::clone(&shared)));
            }
        });
        Gate { address, state, task }
    }

    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn shut(&self) {
        self.state.shut.store(true, Ordering::SeqCst);
        self.state.shutting.notify_waiters();
    }

    /// Ends all connections, as a server does that is replaced by another.
    pub(crate) fn cut(&self) {
        self.state.cutting.notify_waiters();
    }

    pub(crate) fn open(&self) {
        self.state.shut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut stream: TcpStream, server: String, state: Arc<State>) {
    let shutting = state.shutting.notified();
    tokio::pin!(shutting);
    shutting.as_mut().enable();
    if !state.shut.load(Ordering::SeqCst) {
        let mut upstream = TcpStream::connect(server).await.unwrap();
        tokio::select! {
            _ = copy_bidirectional(&mut stream, &mut upstream) => return,
            () = state.cutting.notified() => return,
            () = shutting => {}
        }
    }
    // Kept, and never read again.
    std::future::pending::<()>().await;
}
