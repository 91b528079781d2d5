//! The process signal: the owner started one of the configured programs.
//!
//! A [`Detector`] tells when to scan, the [`scanner`] reads processes from [`procfs`], the [`matcher`] compares them with the
//! patterns, [`cgroup`] excludes the processes of pods, and [`container_stack`] those that run on behalf of pods.
//! [`ArmedScanner`] ties them together.

mod armed;
mod cgroup;
mod container_stack;
mod matcher;
#[cfg(target_os = "linux")]
pub(crate) mod netlink;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
pub(crate) mod netlink;
mod poll;
mod procfs;
mod scanner;

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use tracing::warn;

pub(crate) use armed::{AnswerProbe, ArmedScanner};
pub(crate) use matcher::{MatchSource, ProcessMatch};
pub(crate) use netlink::NetlinkError;
pub(crate) use procfs::Procfs;
pub(crate) use scanner::{ProcessScanner, Scope};

use super::SignalError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("cannot list processes: {0}")]
    ListProcesses(#[source] io::Error),
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "polling needs no kernel events"))]
    #[error("cannot receive kernel events: {0}")]
    Netlink(#[source] NetlinkError),
}

/// The value of `--detector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DetectorChoice {
    /// netlink where it works, otherwise poll
    Auto,
    /// Kernel events from the proc connector
    Netlink,
    /// A scan of all processes every --poll-interval
    Poll,
}

/// What triggers scans.
pub(crate) enum Detector {
    Netlink(netlink::Listener),
    Poll {
        /// Instead of the configured one.
        interval: Option<Duration>,
    },
}

impl Detector {
    /// Opens the chosen detector. With netlink, kernel events are proven to arrive and are queued from here on.
    /// `poll_interval` takes precedence over the configured one.
    pub(crate) fn open(choice: DetectorChoice, poll_interval: Option<Duration>) -> Result<Self, NetlinkError> {
        let poll = Detector::Poll { interval: poll_interval };
        match choice {
            DetectorChoice::Poll => Ok(poll),
            DetectorChoice::Netlink => netlink::Listener::open().map(Detector::Netlink),
            DetectorChoice::Auto => Ok(netlink::Listener::open().map_or_else(
                |error| {
                    warn!(%error, "Cannot receive kernel events; polling instead");
                    poll
                },
                Detector::Netlink,
            )),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Detector::Netlink(_) => "netlink",
            Detector::Poll { .. } => "poll",
        }
    }

    /// Scans all processes, then scans whenever a process may have appeared, until a scan or the detector fails. `wait`
    /// returns when the next poll is due.
    fn run(
        &self,
        scan: impl FnMut(Scope) -> Result<(), SignalError>,
        wait: impl FnMut(),
    ) -> Result<Infallible, SignalError> {
        match self {
            Detector::Netlink(listener) => listener.run(scan),
            Detector::Poll { .. } => poll::run(scan, wait),
        }
    }

    fn poll_interval(&self, configured: Duration) -> Duration {
        match self {
            Detector::Poll { interval: Some(interval) } => *interval,
            Detector::Poll { interval: None } | Detector::Netlink(_) => configured,
        }
    }

    /// Ends the subscription to kernel events, if there is one.
    fn unsubscribe(&self) {
        match self {
            Detector::Netlink(listener) => listener.unsubscribe(),
            Detector::Poll { .. } => {}
        }
    }
}
