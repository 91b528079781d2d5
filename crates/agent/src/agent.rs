//! The run loop: applies the agent configuration, requests the reclaim when a signal reports a match, and scans again when the
//! request has been cleared. It runs in one thread; each signal has a thread of its own.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::mpsc::Receiver;
use tracing::{debug, error, info};

use crate::config::{ConfigError, ReclaimAgentConfig};
use crate::probe::ProbeState;
use crate::reclaim::{ReclaimState, Transition};
use crate::signals::{OwnerMatch, OwnerSignal, SignalError};

/// What the run loop waits for.
pub(crate) struct Inputs {
    /// The text of the agent configuration after each change; `None` when it does not exist.
    pub(crate) configs: BoxStream<'static, Option<String>>,
    pub(crate) matches: Receiver<OwnerMatch>,
    pub(crate) signal_failures: Receiver<SignalError>,
}

pub(crate) struct Agent {
    node: String,
    /// Where the agent configuration comes from, for messages.
    config_source: String,
    signals: Vec<Arc<dyn OwnerSignal>>,
    config: ConfigState,
    /// `None` in a dry run.
    reclaim: Option<ReclaimState>,
    /// `None` in a dry run, or if the state directory is not writable.
    probe: Option<Arc<ProbeState>>,
}

#[derive(Debug, PartialEq, Eq)]
enum ConfigState {
    NotRead,
    /// No ConfigMap, or no patterns in it.
    Empty,
    /// Invalid, and there was no valid one before.
    Invalid(ConfigError),
    Armed(ReclaimAgentConfig),
}

impl Agent {
    pub(crate) fn new(
        node: String,
        config_source: String,
        signals: Vec<Arc<dyn OwnerSignal>>,
        reclaim: Option<ReclaimState>,
    ) -> Self {
        Agent { node, config_source, signals, config: ConfigState::NotRead, reclaim, probe: None }
    }

    pub(crate) fn with_probe(mut self, probe: Option<Arc<ProbeState>>) -> Self {
        self.probe = probe;
        self.update_probe();
        self
    }

    /// Runs until a signal fails.
    pub(crate) async fn run(mut self, mut inputs: Inputs) -> Result<Infallible, SignalError> {
        loop {
            tokio::select! {
                // A match must not wait.
                biased;
                Some(found) = inputs.matches.recv() => {
                    if let Some(reclaim) = &mut self.reclaim {
                        reclaim.request(&found);
                    }
                }
                transition = next_transition(&mut self.reclaim) => self.apply_transition(transition)?,
                Some(text) = inputs.configs.next() => self.apply_config_text(text.as_deref())?,
                failure = inputs.signal_failures.recv() => {
                    return Err(failure.unwrap_or(SignalError::ThreadEnded));
                }
            }
        }
    }

    fn apply_transition(&mut self, transition: Transition) -> Result<(), SignalError> {
        self.update_probe();
        let rescan = match transition {
            Transition::Cleared => true,
            Transition::NodeMismatchResolved => self.reclaim.as_ref().is_some_and(ReclaimState::is_idle),
            Transition::Stored
            | Transition::NodeVerified
            | Transition::NodeMismatch
            | Transition::Unrestricted
            | Transition::Rejected
            | Transition::Failing
            | Transition::CooldownOver => false,
        };
        if rescan {
            debug!(node = self.node, "Rescanning");
            self.signals.iter().try_for_each(|signal| signal.rescan())?;
        }
        Ok(())
    }

    /// An invalid configuration does not replace a valid one.
    fn apply_config_text(&mut self, text: Option<&str>) -> Result<(), SignalError> {
        match text.map(ReclaimAgentConfig::parse).transpose() {
            Ok(config) => self.apply_config(config.unwrap_or_else(ReclaimAgentConfig::empty)),
            Err(error) => {
                let kept_previous = matches!(self.config, ConfigState::Armed(_));
                let (node, config) = (&self.node, &self.config_source);
                error!(node, config, %error, kept_previous, "Invalid agent configuration");
                if !kept_previous {
                    self.config = ConfigState::Invalid(error);
                }
                self.update_probe();
                Ok(())
            }
        }
    }

    /// Arms or disarms the signals if the configuration changed.
    pub(crate) fn apply_config(&mut self, config: ReclaimAgentConfig) -> Result<(), SignalError> {
        let new = if config.is_empty() { ConfigState::Empty } else { ConfigState::Armed(config) };
        if self.config == new {
            return Ok(());
        }
        self.config = new;
        if let ConfigState::Armed(config) = &self.config {
            if let Some(reclaim) = &mut self.reclaim {
                reclaim.rearm();
            }
            for signal in &self.signals {
                info!(node = self.node, detector = signal.detector(), patterns = config.patterns.len(), "Armed");
                signal.arm(config)?;
            }
        } else {
            self.disarm();
        }
        self.update_probe();
        Ok(())
    }

    fn disarm(&mut self) {
        self.signals.iter().for_each(|signal| signal.disarm());
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.disarm();
        }
        info!(node = self.node, config = self.config_source, "Disarmed: nothing to match");
    }

    fn update_probe(&self) {
        let Some(probe) = &self.probe else { return };
        let source = &self.config_source;
        match &self.config {
            ConfigState::Armed(config) => match self.reclaim.as_ref().and_then(ReclaimState::not_ready) {
                Some(reason) => probe.set_not_armed(&reason),
                None => probe.set_armed(self.detection_delay(config)),
            },
            ConfigState::NotRead => probe.set_not_armed(&format!("{source} has not been read yet")),
            ConfigState::Empty => probe.set_not_armed(&format!("{source} does not exist or has no patterns")),
            ConfigState::Invalid(error) => probe.set_not_armed(&format!("{source}: {error}")),
        }
    }

    fn detection_delay(&self, config: &ReclaimAgentConfig) -> Duration {
        self.signals.iter().map(|signal| signal.detection_delay(config)).max().unwrap_or_default()
    }
}

async fn next_transition(reclaim: &mut Option<ReclaimState>) -> Transition {
    match reclaim {
        Some(reclaim) => reclaim.next().await,
        None => pending().await,
    }
}
