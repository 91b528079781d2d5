//! Owner signals: events on this machine that mean that its owner needs it back.
//!
//! Each kind of signal is a module that implements [`OwnerSignal`] and reports to a [`MatchSink`]. To add one, for example a
//! login session: add its settings to [`ReclaimAgentConfig`], a variant to [`OwnerMatch`] and to
//! [`Line`], and create the signal in `run::create_signals`. Existing signals do not change.

mod output;
pub(crate) mod process;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tracing::{debug, info};

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

    /// The pattern that matched.
    fn pattern(&self) -> &str {
        match self {
            OwnerMatch::Process(found) => &found.matched,
        }
    }

    /// `earlier` is the number of matches that were not logged.
    fn log(&self, earlier: u64) {
        match self {
            OwnerMatch::Process(ProcessMatch { pid, comm, matched, source: _ }) => {
                info!(pid, comm, matched, earlier, "Match found");
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

/// A compiler that matches is started thousands of times, so matches of one pattern are logged this often.
const MATCH_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// When each pattern was logged last, and how many matches were not logged since.
#[derive(Debug, Default)]
pub(crate) struct MatchLog(HashMap<String, (Instant, u64)>);

impl MatchLog {
    /// Returns how many earlier matches were not logged, or `None` if this one is not to be logged either.
    fn admit(&mut self, pattern: &str, now: Instant) -> Option<u64> {
        let is_recent = |at: Instant| now.duration_since(at) < MATCH_LOG_INTERVAL;
        if let Some((at, skipped)) = self.0.get_mut(pattern)
            && is_recent(*at)
        {
            *skipped += 1;
            return None;
        }
        let earlier = self.0.remove(pattern).map_or(0, |(_, skipped)| skipped);
        // Patterns of earlier configurations.
        self.0.retain(|_, (at, _)| is_recent(*at));
        self.0.insert(pattern.to_owned(), (now, 0));
        Some(earlier)
    }
}

/// Where signals report to.
#[derive(Clone)]
pub(crate) enum MatchSink {
    /// JSON lines on standard output.
    JsonLines,
    /// The run loop, which requests the reclaim.
    RunLoop { matches: Sender<OwnerMatch>, log: Arc<Mutex<MatchLog>> },
}

impl MatchSink {
    pub(crate) fn run_loop(matches: Sender<OwnerMatch>) -> Self {
        MatchSink::RunLoop { matches, log: Arc::default() }
    }

    pub(crate) fn armed(&self, detector: &str) -> Result<(), SignalError> {
        match self {
            MatchSink::JsonLines => Line::Armed { detector }.write().map_err(SignalError::Output),
            MatchSink::RunLoop { .. } => Ok(()),
        }
    }

    pub(crate) fn report(&self, found: &OwnerMatch) -> Result<(), SignalError> {
        match self {
            MatchSink::JsonLines => Line::from_match(found, Timestamp::now()).write().map_err(SignalError::Output),
            MatchSink::RunLoop { matches, log } => {
                // Sent before logging, which may block. If the channel is full, the matches in it request the same reclaim;
                // the receiver is dropped only when the process ends.
                let _ = matches.try_send(found.clone());
                let admitted = log.lock().admit(found.pattern(), Instant::now());
                if let Some(earlier) = admitted {
                    found.log(earlier);
                } else {
                    debug!(matched = found.pattern(), "Match found again");
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_of_a_pattern_are_logged_once_per_interval() {
        let (mut log, start) = (MatchLog::default(), Instant::now());
        assert_eq!(log.admit("gcc", start), Some(0));
        for second in 1..60 {
            assert_eq!(log.admit("gcc", start + Duration::from_secs(second)), None);
        }
        assert_eq!(log.admit("idea", start + Duration::from_secs(30)), Some(0), "each pattern by itself");
        assert_eq!(log.admit("gcc", start + MATCH_LOG_INTERVAL), Some(59));
        assert_eq!(log.admit("gcc", start + 2 * MATCH_LOG_INTERVAL), Some(0));
        assert_eq!(log.0.len(), 1, "patterns that do not match any more are not kept");
    }
}
