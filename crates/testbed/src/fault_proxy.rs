//! A proxy before an API server that kills a program right after the write of your choice, loses its answer, holds one
//! of the two back, or refuses it in the API server's place. It speaks HTTP/1.1 only.
//!
//! Writes are let through one at a time, each when the one before has been answered. So "after the third write" is one
//! moment and not several: the third has been carried out, the fourth has not been heard of, and whoever sent the third
//! has not got its answer.

mod killing;
mod ledger;
mod serving;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use http::StatusCode;
use tokio::sync::oneshot;

pub use self::ledger::Write;

use self::ledger::{Ledger, Mishap, Refusal};
use crate::control_plane::{ControlPlane, StartError};

/// A running proxy, with a thread and a runtime of its own. It ends when dropped.
///
/// # Guarantees
/// Writes (POST, PUT, PATCH, DELETE) of a client that calls itself `5spot/…` or `5spot-reclaim-agent/…` are counted, Events
/// aside. After a kill no request is passed on that comes from a connection of the time before it.
///
/// # Assumptions
/// One program at a time counts: two that call themselves so are counted together.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    ledger: Arc<Ledger>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy before the API server of a control plane, under the same authority.
    pub fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        let here = Path::new("the fault proxy");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(StartError::io(here))?;
        listener.set_nonblocking(true).map_err(StartError::io(here))?;
        let address = listener.local_addr().map_err(StartError::io(here))?;
        let identity = plane.authority().server(&[])?;
        let upstream = plane.admin().clone();
        let ledger = Arc::new(Ledger::default());
        let (stop, stopped) = oneshot::channel();
        let kept = Arc::clone(&ledger);
        let thread = std::thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || serving::run(listener, &identity, &upstream, &kept, stopped))
            .map_err(StartError::io(here))?;
        Ok(Self { address, ledger, stop: Some(stop), thread: Some(thread) })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The writes that were answered so far, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.ledger.writes()
    }

    /// Kills a process, by SIGKILL, when the `nth` write from now on has been answered. It never gets that answer, and
    /// nothing it has sent meanwhile is passed on.
    pub fn kill_after(&self, nth: usize, pid: u32) {
        self.ledger.arm(nth, Mishap::Kill(pid));
    }

    /// Ends the connection of whoever sends the `nth` write from now on when it has been carried out, without an answer.
    pub fn lose_answer_of(&self, nth: usize) {
        self.ledger.arm(nth, Mishap::LoseAnswer);
    }

    /// Holds the answer to the `nth` write from now on, when it has been carried out, until [`Self::release`].
    pub fn hold_answer_of(&self, nth: usize) {
        self.ledger.arm(nth, Mishap::HoldAnswer);
    }

    /// Keeps the `nth` write from now on from the API server until [`Self::release`].
    pub fn hold_request_of(&self, nth: usize) {
        self.ledger.arm(nth, Mishap::HoldRequest);
    }

    /// Whether a write has come that is kept from the API server.
    pub fn holds_request(&self) -> bool {
        self.ledger.holds_request()
    }

    /// Lets the write or the answer go that is held.
    pub fn release(&self) {
        self.ledger.release();
    }

    /// Refuses the next writes, so many of them, with this status and the request to wait for so many seconds. The API
    /// server does not get them.
    pub fn refuse(&self, times: usize, status: StatusCode, retry_after: Option<u32>) {
        self.ledger.refuse(times, Refusal { status, retry_after });
    }

    /// Kills nobody, loses nothing and refuses nothing.
    pub fn spare(&self) {
        self.ledger.disarm();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the proxy has been printed by its thread.
            let _ = thread.join();
        }
    }
}
