//! The scanner as the agent arms it, shared by the detector thread and the run loop.
//!
//! Guarantee: no process that starts while the patterns change is missed. The patterns are replaced first and all
//! processes are scanned afterwards, both under one lock, so a concurrent event is matched with the new patterns.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::procfs::Procfs;
use super::scanner::{ProcessScanner, Scope};
use super::{Detector, ProcessError};
use crate::config::{Patterns, ReclaimAgentConfig};
use crate::signals::{MatchSink, OwnerSignal, SignalError};

/// Called with the pid of a `--probe` process.
pub(crate) type AnswerProbe = Box<dyn Fn(u32) + Send + Sync>;

pub(crate) struct ArmedScanner {
    detector: Detector,
    state: Mutex<State>,
    armed: Condvar,
    sink: MatchSink,
    /// `None` where no probe can be answered.
    answer_probe: Option<AnswerProbe>,
}

struct State {
    scanner: ProcessScanner,
    /// `None` while disarmed.
    poll_interval: Option<Duration>,
}

impl ArmedScanner {
    /// A scanner that is not armed yet.
    pub(crate) fn new(detector: Detector, procfs: Procfs, sink: MatchSink, answer_probe: Option<AnswerProbe>) -> Self {
        let state = State { scanner: ProcessScanner::new(Patterns::default(), procfs), poll_interval: None };
        ArmedScanner { detector, state: Mutex::new(state), armed: Condvar::new(), sink, answer_probe }
    }

    fn scan(&self, scope: Scope) -> Result<(), SignalError> {
        self.scan_and_report(&mut self.state.lock().scanner, scope)
    }

    /// Waits for the next poll; blocks while disarmed.
    fn wait_for_poll(&self) {
        let mut state = self.state.lock();
        match state.poll_interval {
            Some(interval) => {
                self.armed.wait_for(&mut state, interval);
            }
            None => self.armed.wait_while(&mut state, |state| state.poll_interval.is_none()),
        }
    }

    /// Matches are reported before probes are answered: a probe that succeeded proves that every program started before
    /// it has been handled.
    fn scan_and_report(&self, scanner: &mut ProcessScanner, scope: Scope) -> Result<(), SignalError> {
        let result = scanner.scan(scope).map_err(ProcessError::ListProcesses)?;
        result.matches.into_iter().try_for_each(|found| self.sink.report(&found.into()))?;
        if let Some(answer_probe) = &self.answer_probe {
            result.probes.into_iter().for_each(answer_probe);
        }
        Ok(())
    }
}

impl OwnerSignal for ArmedScanner {
    fn detector(&self) -> &'static str {
        self.detector.name()
    }

    fn arm(&self, config: &ReclaimAgentConfig) -> Result<(), SignalError> {
        let mut state = self.state.lock();
        state.scanner.set_patterns(config.patterns.clone());
        state.poll_interval = (!config.patterns.is_empty()).then(|| self.detector.poll_interval(config.poll_interval));
        self.armed.notify_all();
        self.sink.armed(self.detector.name())?;
        self.scan_and_report(&mut state.scanner, Scope::All)
    }

    fn disarm(&self) {
        let mut state = self.state.lock();
        state.scanner.set_patterns(Patterns::default());
        state.poll_interval = None;
    }

    fn rescan(&self) -> Result<(), SignalError> {
        let mut state = self.state.lock();
        state.scanner.clear_reported();
        self.scan_and_report(&mut state.scanner, Scope::All)
    }

    fn detection_delay(&self, config: &ReclaimAgentConfig) -> Duration {
        match self.detector {
            Detector::Netlink(_) => Duration::ZERO,
            Detector::Poll { .. } => self.detector.poll_interval(config.poll_interval),
        }
    }

    fn run(&self) -> Result<Infallible, SignalError> {
        self.detector.run(|scope| self.scan(scope), || self.wait_for_poll())
    }

    fn stop(&self) {
        self.detector.unsubscribe();
    }
}
