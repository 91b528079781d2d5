//! The kernel's proc connector: a message for each program that is started and each process that is renamed.
//!
//! Expected flow: [`Listener::open`] subscribes and proves that events arrive; [`Listener::run`] has all there is looked
//! at once, and then each process that the kernel tells of. What was started between the two is still in the queue.
//!
//! Guarantee: a loss (the queue ran over, a message that makes no sense) is answered by a look at everything.

mod message;
mod socket;

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::{Duration, Instant};

use tracing::warn;

use super::{Ended, Hint};
use message::Event;
use socket::{Received, Socket};

/// How long the kernel may take to prove itself. It answers within the call that asks it; the rest is for a machine that
/// is so busy that other events come first.
const PATIENCE: Duration = Duration::from_secs(3);

/// The name of the thread whose naming is the event that proves that events arrive.
const PROOF: &str = "5spot-proof";

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the proc connector cannot be opened ({0})")]
    Open(#[source] io::Error),
    #[error(
        "the proc connector does not answer in this network namespace, only in the host's (hostNetwork: true in a pod)"
    )]
    NetworkNamespace,
    #[error("the kernel refuses the subscription ({0}); it needs CAP_NET_ADMIN")]
    Denied(#[source] io::Error),
    #[error(
        "the kernel does not acknowledge the subscription; it needs the host's pid namespace (hostPID: true in a pod) \
         and CONFIG_PROC_EVENTS"
    )]
    NotAcknowledged,
    #[error("the kernel acknowledges the subscription, but its events do not arrive")]
    Silent,
    #[error("the proc connector cannot be read ({0})")]
    Read(#[source] io::Error),
}

/// A subscription that is proven.
pub(crate) struct Listener {
    socket: Socket,
}

impl Listener {
    /// Subscribes, and proves it: the kernel acknowledges, and the event of a thread that is given a name arrives.
    pub(super) fn open() -> Result<Self, Refused> {
        let socket = Socket::open().map_err(Refused::Open)?;
        let listener = Listener { socket };
        listener.subscribe()?;
        listener.prove()?;
        listener.socket.wait_at_most(None).map_err(Refused::Open)?;
        Ok(listener)
    }

    /// Other listeners' acknowledgements arrive here too, so ours has a number that is hard to have by chance.
    fn subscribe(&self) -> Result<(), Refused> {
        let number = (RandomState::new().hash_one(std::process::id()) >> 32) as u32;
        self.socket.send(&message::listen(number)).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Refused::NetworkNamespace,
            io::ErrorKind::PermissionDenied => Refused::Denied(error),
            _ => Refused::Open(error),
        })?;
        let acknowledged = self.wait_for(|event| match event {
            Event::Acknowledged { number: answered, error } if *answered == number.wrapping_add(1) => Some(*error),
            _ => None,
        })?;
        match acknowledged {
            Some(0) => Ok(()),
            Some(error) => Err(Refused::Denied(io::Error::from_raw_os_error(error.cast_signed()))),
            None => Err(Refused::NotAcknowledged),
        }
    }

    fn prove(&self) -> Result<(), Refused> {
        let named = std::thread::Builder::new().name(PROOF.into()).spawn(|| ()).map_err(Refused::Open)?;
        let own = std::process::id();
        let seen = self.wait_for(|event| match event {
            Event::Renamed { process, name, .. } if *process == own && name == PROOF.as_bytes() => Some(()),
            _ => None,
        });
        // The thread does nothing, so it cannot panic.
        let _ = named.join();
        seen?.ok_or(Refused::Silent)
    }

    /// What is not waited for is dropped: whatever was started meanwhile is found by the look at everything that follows.
    fn wait_for<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> Result<Option<T>, Refused> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = socket::buffer();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.wait_at_most(Some(left)).map_err(Refused::Open)?;
            if let Received::Events(events) = self.socket.receive(&mut buffer).map_err(Refused::Read)?
                && let Some(found) = events.iter().find_map(&wanted)
            {
                return Ok(Some(found));
            }
        }
    }

    pub(super) fn run<E>(self, mut look: impl FnMut(Hint) -> Result<(), E>) -> Result<Infallible, Ended<E>> {
        let mut buffer = socket::buffer();
        look(Hint::All).map_err(Ended::Looking)?;
        loop {
            match self.socket.receive(&mut buffer).map_err(|it| Ended::Detector(Refused::Read(it)))? {
                Received::Events(events) => {
                    for pid in events.iter().filter_map(Event::process_of_interest) {
                        look(Hint::One(pid)).map_err(Ended::Looking)?;
                    }
                }
                Received::Lost => {
                    warn!("events of the kernel were lost: looking at every process");
                    look(Hint::All).map_err(Ended::Looking)?;
                }
                Received::Nothing => {}
            }
        }
    }

    /// A second handle that ends the subscription, for whoever ends the process. The kernel of Linux 6.6 and later does
    /// it by itself; an older one would go on making events for nobody.
    pub(crate) fn farewell(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let socket = self.socket.try_clone()?;
        Ok(move || {
            // The process ends whether or not the kernel hears it.
            let _ = socket.send(&message::ignore());
        })
    }
}

#[cfg(test)]
mod tests;
