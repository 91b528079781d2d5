//! How the agent learns that it has to look: the kernel tells it, or it looks every so often.

#[cfg(target_os = "linux")]
pub(crate) mod netlink;
#[cfg(not(target_os = "linux"))]
#[path = "detect/elsewhere.rs"]
pub(crate) mod netlink;
mod poll;

use std::convert::Infallible;
use std::io;

use clap::ValueEnum;
use tracing::warn;

pub(crate) use netlink::Refused;

/// Which detector is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The kernel's proc connector where it works, else polling
    Auto,
    /// The kernel's proc connector, or nothing
    Netlink,
    /// A scan of all processes every `poll_interval_ms`
    Poll,
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Every process there is.
    All,
    /// The one that has been started or renamed.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there it can only be polled"))]
    One(u32),
}

/// A detector that is proven to work.
pub(crate) enum Detector {
    Netlink(netlink::Listener),
    Poll,
}

/// Why a detector has ended.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// The detector itself does not work any more.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "polling does not end"))]
    Detector(Refused),
    /// Whoever looked does not want to go on.
    Looking(E),
}

impl Detector {
    /// Arms what was asked for. From here on no started process is missed: the first hint is to look at all of them.
    pub(crate) fn arm(choice: Choice) -> Result<Self, Refused> {
        match choice {
            Choice::Poll => Ok(Detector::Poll),
            Choice::Netlink => netlink::Listener::open().map(Detector::Netlink),
            Choice::Auto => Ok(netlink::Listener::open().map_or_else(
                |refused| {
                    warn!(reason = %refused, "no events from the kernel: polling instead");
                    Detector::Poll
                },
                Detector::Netlink,
            )),
        }
    }

    /// What it is called in the output.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Detector::Netlink(_) => "netlink",
            Detector::Poll => "poll",
        }
    }

    /// What is left to do when the process ends.
    pub(crate) fn farewell(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        let netlink = match self {
            Detector::Netlink(listener) => Some(listener.farewell()?),
            Detector::Poll => None,
        };
        Ok(move || netlink.into_iter().for_each(|it| it()))
    }

    /// Calls `look` for all there is, then whenever there may be something new, until it fails. Where nobody tells when
    /// that is, `rest` ends when it is time to look again.
    pub(crate) fn run<E>(
        self,
        look: impl FnMut(Hint) -> Result<(), E>,
        rest: impl FnMut(),
    ) -> Result<Infallible, Ended<E>> {
        match self {
            Detector::Netlink(listener) => listener.run(look),
            Detector::Poll => poll::run(look, rest).map_err(Ended::Looking),
        }
    }
}
