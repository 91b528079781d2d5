//! Owner signals: events on this machine that mean that its owner needs it back.
//!
//! Each kind of signal is a module that implements [`OwnerSignal`] and reports to a [`MatchSink`]. To add one, for example a
//! login session: add its settings to [`ReclaimAgentConfig`], a variant to [`OwnerMatch`] and to
//! [`Line`], and create the signal in `run::create_signals`. Existing signals do not change.

mod output;
pub(crate) mod process;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::info;

use crate::config::ReclaimAgentConfig;
use output::Line;
use process::{ProcessError, ProcessMatch};

/// Detects one kind of owner activity.
pub(crate) trait OwnerSignal: Send + Sync {
    /// How matches are detected, for logs and `--dry-run`.
    fn detector(&self) -> &'static str;

    /// Applies a configuration and reports everything that matches it already.
    fn arm(&self, config: &ReclaimAgentConfig) -> Result<(), SignalError>;

    /// Reports nothing until armed again.
    fn disarm(&self);

    /// Reports everything that matches now, including what was reported before.
    fn rescan(&self) -> Result<(), SignalError>;

    /// How long the detection of a match may take.
    fn detection_delay(&self, config: &ReclaimAgentConfig) -> Duration;

    /// Blocks the calling thread and reports matches until detection fails.
    fn run(&self) -> Result<Infallible, SignalError>;

    /// Releases kernel resources; called when the process ends.
    fn stop(&self);
}

/// Why a signal cannot detect or report matches any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignalError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    #[error("a detector thread ended unexpectedly")]
    ThreadEnded,
}

/// Owner activity that was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerMatch {
    Process(ProcessMatch),
}

impl OwnerMatch {
    /// The value of the annotation `reclaim-reason`.
    pub(crate) fn reason(&self) -> String {
        match self {
            OwnerMatch::Process(found) => format!("process-match: {}", found.matched),
        }
    }

    fn log(&self) {
        match self {
            OwnerMatch::Process(ProcessMatch { pid, comm, matched, source: _ }) => {
                info!(pid, comm, matched, "Match found");
            }
        }
    }
}

impl From<ProcessMatch> for OwnerMatch {
    fn from(found: ProcessMatch) -> Self {
        OwnerMatch::Process(found)
    }
}

/// One is enough to request the reclaim.
pub(crate) const MAX_PENDING_MATCHES: usize = 16;

/// Where signals report to.
#[derive(Clone)]
pub(crate) enum MatchSink {
    /// JSON lines on standard output.
    JsonLines,
    /// The run loop, which requests the reclaim.
    RunLoop(Sender<OwnerMatch>),
}

impl MatchSink {
    pub(crate) fn armed(&self, detector: &str) -> Result<(), SignalError> {
        match self {
            MatchSink::JsonLines => Line::Armed { detector }.write().map_err(SignalError::Output),
            MatchSink::RunLoop(_) => Ok(()),
        }
    }

    pub(crate) fn report(&self, found: &OwnerMatch) -> Result<(), SignalError> {
        match self {
            MatchSink::JsonLines => Line::from_match(found, Timestamp::now()).write().map_err(SignalError::Output),
            MatchSink::RunLoop(matches) => {
                // Sent before logging, which may block. If the channel is full, the matches in it request the same reclaim;
                // the receiver is dropped only when the process ends.
                let _ = matches.try_send(found.clone());
                found.log();
                Ok(())
            }
        }
    }
}

/// Runs each signal in a thread of its own. The receiver yields the error of the first one that fails.
pub(crate) fn start(signals: &[Arc<dyn OwnerSignal>]) -> io::Result<Receiver<SignalError>> {
    let (errors, failed) = channel(1);
    for signal in signals {
        let (signal, errors) = (Arc::clone(signal), errors.clone());
        thread::Builder::new().name("detector".into()).spawn(move || {
            let Err(error) = signal.run();
            // Full if another signal failed first, which ends the process.
            let _ = errors.try_send(error);
        })?;
    }
    Ok(failed)
}
