//! Readiness: `5spot-reclaim-agent --probe` succeeds if the agent is armed and detects processes.
//!
//! Expected flow: the agent keeps a file that says whether it is armed, and why not. The probe reads it, and if the agent is
//! armed, waits until the agent has detected the probe process itself, which proves that detection works. The agent answers
//! with a file whose name contains the probe's pid and whose content is its start time, because pids are reused.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::signals::process::Procfs;

const STATE_FILE: &str = "state";
const ANSWER_PREFIX: &str = "seen-";
const ARMED: &str = "armed";

/// How long the agent may take to detect the probe, in addition to its detection delay. With the longest one this is the
/// `timeoutSeconds` of the DaemonSet.
const TIMEOUT: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("no agent keeps its state in {}: {source}; is one running with this --state-dir?", directory.display())]
    NoState { directory: PathBuf, source: io::Error },
    /// `state` begins with "not armed: ".
    #[error("the agent is {state}")]
    NotArmed { state: String },
    #[error("the agent with its state in {} did not detect this process: it has ended, or it receives no events", directory.display())]
    NotDetected { directory: PathBuf },
}

/// The agent's side: the files that probes read.
pub(crate) struct ProbeState {
    directory: PathBuf,
    procfs: Procfs,
}

impl ProbeState {
    pub(crate) fn create(directory: &Path, procfs: Procfs) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(ProbeState { directory: directory.to_owned(), procfs })
    }

    /// `detection_delay` is how much longer than usual a probe has to wait.
    pub(crate) fn set_armed(&self, detection_delay: Duration) {
        self.write_state(&format!("{ARMED} {}\n", detection_delay.as_millis()));
    }

    pub(crate) fn set_not_armed(&self, reason: &str) {
        self.write_state(&format!("not {ARMED}: {reason}\n"));
    }

    fn write_state(&self, text: &str) {
        let temporary = self.directory.join("state.new");
        let written =
            fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, self.directory.join(STATE_FILE)));
        if let Err(error) = written {
            warn!(directory = %self.directory.display(), %error, "Cannot write --state-dir; --probe will fail");
        }
    }

    /// Confirms to a probe that it was detected, and removes the answers of probes that have exited.
    pub(crate) fn answer(&self, pid: u32) {
        let Some(start_time) = self.procfs.process(pid).start_time() else { return };
        // Without an answer the probe fails and reports it.
        let _ = fs::write(self.directory.join(format!("{ANSWER_PREFIX}{pid}")), start_time.to_string());
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let probe = name.to_str().and_then(|name| name.strip_prefix(ANSWER_PREFIX)?.parse().ok());
            if probe.is_some_and(|pid| self.procfs.process(pid).start_time().is_none()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The probe's side.
pub(crate) fn check(directory: &Path, procfs: &Procfs) -> Result<(), ProbeError> {
    let state = fs::read_to_string(directory.join(STATE_FILE))
        .map_err(|source| ProbeError::NoState { directory: directory.to_owned(), source })?;
    let Some(detection_delay) = state.strip_prefix(ARMED) else {
        return Err(ProbeError::NotArmed { state: state.trim_end().to_owned() });
    };
    let detection_delay = Duration::from_millis(detection_delay.trim().parse().unwrap_or_default());
    let pid = procfs.own_pid();
    let (answer, start_time) = (directory.join(format!("{ANSWER_PREFIX}{pid}")), procfs.process(pid).start_time());
    let deadline = Instant::now() + TIMEOUT + detection_delay;
    while Instant::now() < deadline {
        let answered = fs::read_to_string(&answer).ok().and_then(|text| text.parse().ok());
        if answered.is_some() && answered == start_time {
            // If this fails, the agent removes it later.
            let _ = fs::remove_file(&answer);
            return Ok(());
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    Err(ProbeError::NotDetected { directory: directory.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::POLL_INTERVAL_MS;

    /// Otherwise the kubelet kills the probe while it waits for a scan.
    #[test]
    fn probe_ends_before_the_timeout_of_the_daemon_set() {
        let daemon_set = include_str!("../../../deploy/node-agent/daemonset.yaml");
        let mut lines = daemon_set.lines().map(str::trim);
        let timeout = lines.find_map(|line| line.strip_prefix("timeoutSeconds: ")).unwrap().parse().unwrap();
        let longest = TIMEOUT + Duration::from_millis(*POLL_INTERVAL_MS.end());
        assert!(longest <= Duration::from_secs(timeout), "{longest:?}");
    }
}
