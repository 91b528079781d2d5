//! A proxy in front of an API server that injects a fault at a chosen write: it kills the client right after the write,
//! drops or holds the response, holds the request, or rejects it. HTTP/1.1 only.
//!
//! Writes are forwarded one at a time, each after the response to the previous one. So "after the third write" is one
//! well-defined moment: the API server has executed the third, has not received the fourth, and the client has not
//! received the response to the third.

mod faults;
mod kill;
mod server;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use http::StatusCode;
use tokio::sync::oneshot;

pub use self::faults::Write;

use self::faults::{Fault, Faults, Rejection, Sender};
use crate::control_plane::{ControlPlane, StartError};

/// A running proxy with its own thread and runtime. Stops when dropped.
///
/// # Guarantees
/// Counts writes (POST, PUT, PATCH, DELETE) except Events of clients whose user agent starts with `5spot/` or
/// `5spot-reclaim-agent/`. After a kill, no request is forwarded on a connection that was accepted before it.
///
/// # Assumptions
/// Only one such program uses the proxy at a time: writes are counted per proxy, not per client.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy for the API server of a control plane, with a certificate of the same authority.
    pub fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        let cannot_start = || StartError::listen("the fault proxy");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot_start())?;
        listener.set_nonblocking(true).map_err(cannot_start())?;
        let address = listener.local_addr().map_err(cannot_start())?;
        let identity = plane.authority().server(&[])?;
        let upstream = plane.admin().clone();
        let faults = Arc::new(Faults::default());
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&faults);
        let thread = std::thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn(move || server::run(listener, &identity, &upstream, &shared, stopped))
            .map_err(cannot_start())?;
        Ok(Self { address, faults, stop: Some(stop), thread: Some(thread) })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The counted writes that were answered so far, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.faults.writes()
    }

    /// Kills a process with SIGKILL after the API server has answered the `nth` write from now. The process does not
    /// receive that response, and none of its later requests is forwarded.
    pub fn kill_after(&self, nth: usize, pid: u32) {
        self.faults.arm(nth, Fault::Kill(pid));
    }

    /// Closes the connection instead of forwarding the response to the `nth` write from now.
    pub fn drop_response_of(&self, nth: usize) {
        self.faults.arm(nth, Fault::DropResponse);
    }

    /// Holds the response to the `nth` write from now until [`Self::release`].
    pub fn hold_response_of(&self, nth: usize) {
        self.faults.arm(nth, Fault::HoldResponse);
    }

    /// Holds the `nth` write from now until [`Self::release`]; the API server does not receive it before.
    pub fn hold_request_of(&self, nth: usize) {
        self.faults.arm(nth, Fault::HoldRequest);
    }

    /// Whether a request is being held.
    pub fn holds_request(&self) -> bool {
        self.faults.holds_request()
    }

    /// Forwards the held request or response.
    pub fn release(&self) {
        self.faults.release();
    }

    /// Rejects the next `times` writes with `status` and `Retry-After`. The API server does not receive them.
    pub fn reject_next(&self, times: usize, status: StatusCode, retry_after: Option<u32>) {
        self.faults.reject_next(times, Rejection { status, retry_after, sender: Sender::Server });
    }

    /// Rejects the next write as an admission webhook that requests to wait.
    pub fn reject_next_as_webhook(&self, status: StatusCode, retry_after: u32) {
        let rejection = Rejection { status, retry_after: Some(retry_after), sender: Sender::Webhook };
        self.faults.reject_next(1, rejection);
    }

    /// Removes the armed fault and rejection.
    pub fn clear_faults(&self) {
        self.faults.clear();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic, if any.
            let _ = thread.join();
        }
    }
}
