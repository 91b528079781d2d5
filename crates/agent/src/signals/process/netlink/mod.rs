//! The kernel's proc connector: one message per exec and per renamed process.
//!
//! Expected flow: [`Listener::open`] subscribes and proves that events arrive; [`Listener::run`] scans all processes and then
//! each process that the kernel reports. Events between the two calls wait in the socket's queue.
//!
//! Guarantee: when events are lost (queue overflow, malformed message), all processes are scanned, after the queue has been
//! emptied: from the overflow until then the kernel drops every event, and reports only the first one. A scan once a minute
//! bounds losses that the kernel does not report.

mod message;
mod socket;

use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{ProcessError, Scope};
use crate::signals::SignalError;
use message::Event;
use socket::{Drained, Received, Socket};

/// How long to wait for an expected event. The kernel replies within the system call; the rest is for a busy machine, where
/// other events are queued before the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// A pod that executes programs in a loop can overflow the queue again and again.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// How long a loss that the kernel does not report can last: another program that ends the subscription of all listeners
/// (before Linux 6.6), an event that the kernel has no memory for. A scan takes some 10 ms.
const RESCAN_INTERVAL: Duration = Duration::from_mins(1);

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
    /// Whether events were lost before [`Self::run`].
    has_lost: bool,
}

impl Listener {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open().map_err(NetlinkError::Open)?;
        let mut listener = Listener { socket, has_lost: false };
        listener.subscribe()?;
        listener.prove_delivery()?;
        Ok(listener)
    }

    /// Acknowledgements of other subscribers arrive on this socket too, so the sequence number is random.
    fn subscribe(&mut self) -> Result<(), NetlinkError> {
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
    fn prove_delivery(&mut self) -> Result<(), NetlinkError> {
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
    fn wait_for<T>(&mut self, expected: impl Fn(&Event) -> Option<T>) -> Result<Option<T>, NetlinkError> {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let mut buffer = socket::buffer();
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            self.socket.set_receive_timeout(Some(remaining)).map_err(NetlinkError::Open)?;
            match self.socket.receive(&mut buffer).map_err(NetlinkError::Read)? {
                Received::Events(events) => {
                    if let Some(found) = events.iter().find_map(&expected) {
                        return Ok(Some(found));
                    }
                }
                Received::Lost => self.has_lost = true,
                Received::Nothing => {}
            }
        }
    }

    /// Runs until `scan` or the socket fails.
    pub(super) fn run(&self, scan: impl FnMut(Scope) -> Result<(), SignalError>) -> Result<Infallible, SignalError> {
        self.run_with(RESCAN_INTERVAL, scan)
    }

    fn run_with(
        &self,
        rescan_interval: Duration,
        mut scan: impl FnMut(Scope) -> Result<(), SignalError>,
    ) -> Result<Infallible, SignalError> {
        self.socket.set_receive_timeout(Some(rescan_interval)).map_err(read_error)?;
        let mut buffer = socket::buffer();
        let mut last_logged = None;
        if self.has_lost {
            self.recover(&mut buffer, &mut scan)?;
        } else {
            scan(Scope::All)?;
        }
        let mut last_scan = Instant::now();
        loop {
            match self.socket.receive(&mut buffer).map_err(read_error)? {
                Received::Events(events) => {
                    events.iter().filter_map(Event::scan_pid).try_for_each(|pid| scan(Scope::Process(pid)))?;
                }
                Received::Lost => {
                    log_lost(&mut last_logged, Instant::now());
                    self.recover(&mut buffer, &mut scan)?;
                    last_scan = Instant::now();
                }
                Received::Nothing => {}
            }
            if last_scan.elapsed() >= rescan_interval {
                scan(Scope::All)?;
                last_scan = Instant::now();
            }
        }
    }

    /// Empties the queue, so that the kernel delivers events again, and then scans what started meanwhile. While events
    /// arrive faster than they are read, each round scans as well.
    fn recover(
        &self,
        buffer: &mut [u8],
        scan: &mut impl FnMut(Scope) -> Result<(), SignalError>,
    ) -> Result<(), SignalError> {
        loop {
            let drained = self.socket.drain(buffer).map_err(read_error)?;
            scan(Scope::All)?;
            match drained {
                Drained::Empty => return Ok(()),
                Drained::LimitReached => {}
            }
        }
    }

    /// Linux 6.6 and later end the subscription with the process; older kernels would keep generating events.
    pub(super) fn unsubscribe(&self) {
        // The process ends either way.
        let _ = self.socket.send(&message::ignore());
    }
}

fn read_error(error: io::Error) -> ProcessError {
    ProcessError::Netlink(NetlinkError::Read(error))
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
