//! The kernel's proc connector: one message per exec and per renamed process.
//!
//! Expected flow: [`Listener::open`] subscribes and proves that events arrive; [`Listener::run`] scans all processes and then
//! each process that the kernel reports. Events between the two calls wait in the socket's queue.
//!
//! Guarantee: when events are lost (queue overflow, malformed message), all processes are scanned.

mod message;
mod socket;

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{ProcessError, Scope};
use crate::signals::SignalError;
use message::Event;
use socket::{Received, Socket};

/// How long to wait for an expected event. The kernel replies within the system call; the rest is for a busy machine, where
/// other events are queued before the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// A pod that executes programs in a loop can overflow the queue again and again.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The name of the thread whose creation must arrive as an event.
const SELF_TEST_THREAD: &str = "5spot-proof";

/// Why kernel events cannot be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlinkError {
    #[error("cannot open the proc connector: {0}")]
    Open(#[source] io::Error),
    #[error("the proc connector exists only in the host's network namespace; set hostNetwork: true in the pod")]
    NetworkNamespace,
    #[error("the kernel rejected the subscription: {0}; the agent needs CAP_NET_ADMIN")]
    Rejected(#[source] io::Error),
    #[error(
        "the kernel did not acknowledge the subscription; the agent needs the host's pid namespace (hostPID: true in the pod) \
         and a kernel with CONFIG_PROC_EVENTS"
    )]
    NotAcknowledged,
    #[error("the kernel acknowledged the subscription, but events do not arrive")]
    NoEvents,
    #[error("cannot read from the proc connector: {0}")]
    Read(#[source] io::Error),
}

/// A subscription that is proven to deliver events.
pub(crate) struct Listener {
    socket: Socket,
}

impl Listener {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open().map_err(NetlinkError::Open)?;
        let listener = Listener { socket };
        listener.subscribe()?;
        listener.prove_delivery()?;
        listener.socket.set_receive_timeout(None).map_err(NetlinkError::Open)?;
        Ok(listener)
    }

    /// Acknowledgements of other subscribers arrive on this socket too, so the sequence number is random.
    fn subscribe(&self) -> Result<(), NetlinkError> {
        let sequence = fastrand::u32(..);
        self.socket.send(&message::listen(sequence)).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => NetlinkError::NetworkNamespace,
            io::ErrorKind::PermissionDenied => NetlinkError::Rejected(error),
            _ => NetlinkError::Open(error),
        })?;
        let acknowledgement = self.wait_for(|event| match event {
            Event::Acknowledged { sequence: acknowledged, error } if *acknowledged == sequence.wrapping_add(1) => {
                Some(*error)
            }
            _ => None,
        })?;
        match acknowledgement {
            Some(0) => Ok(()),
            Some(error) => Err(NetlinkError::Rejected(io::Error::from_raw_os_error(error.cast_signed()))),
            None => Err(NetlinkError::NotAcknowledged),
        }
    }

    /// Names a thread and waits for the event.
    fn prove_delivery(&self) -> Result<(), NetlinkError> {
        let thread =
            std::thread::Builder::new().name(SELF_TEST_THREAD.into()).spawn(|| ()).map_err(NetlinkError::Open)?;
        let own_pid = std::process::id();
        let delivered = self.wait_for(|event| match event {
            Event::Renamed { pid, name, .. } if *pid == own_pid && name == SELF_TEST_THREAD.as_bytes() => Some(()),
            _ => None,
        });
        // An empty thread cannot panic.
        let _ = thread.join();
        delivered?.ok_or(NetlinkError::NoEvents)
    }

    /// Drops other events: the full scan at the start of [`Self::run`] covers them.
    fn wait_for<T>(&self, expected: impl Fn(&Event) -> Option<T>) -> Result<Option<T>, NetlinkError> {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let mut buffer = socket::buffer();
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            self.socket.set_receive_timeout(Some(remaining)).map_err(NetlinkError::Open)?;
            if let Received::Events(events) = self.socket.receive(&mut buffer).map_err(NetlinkError::Read)?
                && let Some(found) = events.iter().find_map(&expected)
            {
                return Ok(Some(found));
            }
        }
    }

    /// Runs until `scan` or the socket fails.
    pub(super) fn run(
        &self,
        mut scan: impl FnMut(Scope) -> Result<(), SignalError>,
    ) -> Result<Infallible, SignalError> {
        let mut buffer = socket::buffer();
        let mut last_logged = None;
        scan(Scope::All)?;
        loop {
            match self.socket.receive(&mut buffer).map_err(NetlinkError::Read).map_err(ProcessError::Netlink)? {
                Received::Events(events) => {
                    events.iter().filter_map(Event::scan_pid).try_for_each(|pid| scan(Scope::Process(pid)))?;
                }
                Received::Lost => {
                    log_lost(&mut last_logged, Instant::now());
                    scan(Scope::All)?;
                }
                Received::Nothing => {}
            }
        }
    }

    /// Linux 6.6 and later end the subscription with the process; older kernels would keep generating events.
    pub(super) fn unsubscribe(&self) {
        // The process ends either way.
        let _ = self.socket.send(&message::ignore());
    }
}

/// Logs at most one warning per interval; returns whether it did.
fn log_lost(last_logged: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = last_logged.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL);
    if is_due {
        warn!("Kernel events lost; rescanning all processes");
        *last_logged = Some(now);
    }
    is_due
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
