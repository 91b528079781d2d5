//! Whether the agent is armed and hears of processes, asked by starting a process: `5spot-reclaim-agent --probe`.
//!
//! Expected flow: the agent keeps a file that says whether it is armed, and why not. The probe reads it, and if it says
//! yes, waits until the agent has noticed the probe itself: the start of the probe is the event that proves that events
//! arrive. The agent tells so by a file with the probe's id in its name and its time of start in it, since ids come again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fivespot_cli_support::Failure;
use tracing::warn;

use crate::proc::Proc;

/// The argument that makes a process a probe.
pub(crate) const ARGUMENT: &[u8] = b"--probe";

const STATE: &str = "state";
const SEEN: &str = "seen-";
const ARMED: &str = "armed";

/// How long the agent may take to notice a probe, beyond the time between two looks.
const PATIENCE: Duration = Duration::from_secs(5);
/// A probe lives so shortly that watching a directory would be more work.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The agent's side: a directory with its answers.
pub(crate) struct Answers {
    directory: PathBuf,
    proc: Proc,
}

impl Answers {
    pub(crate) fn in_directory(directory: &Path, proc: Proc) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(Answers { directory: directory.to_owned(), proc })
    }

    /// From now on probes are told this: nothing against it, but wait as long as it may take to notice you.
    pub(crate) fn armed(&self, between_looks: Duration) {
        self.say(&format!("{ARMED} {}\n", between_looks.as_millis()));
    }

    /// From now on probes are told why not.
    pub(crate) fn not_armed(&self, why: &str) {
        self.say(&format!("not {ARMED}: {why}\n"));
    }

    fn say(&self, text: &str) {
        let draft = self.directory.join("state.new");
        let said = fs::write(&draft, text).and_then(|()| fs::rename(&draft, self.directory.join(STATE)));
        if let Err(error) = said {
            warn!(directory = %self.directory.display(), %error, "--state-dir cannot be written: --probe fails");
        }
    }

    /// Tells this probe that it has been noticed. What earlier ones have left is taken away.
    pub(crate) fn answer(&self, pid: u32) {
        let Some(started) = self.proc.process(pid).started() else { return };
        // A probe that is not told fails, and says so.
        let _ = fs::write(self.directory.join(format!("{SEEN}{pid}")), started.to_string());
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let of = name.to_str().and_then(|it| it.strip_prefix(SEEN)?.parse().ok());
            if of.is_some_and(|it| self.proc.process(it).started().is_none()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The probe's side: fails if the agent is not armed, or does not notice us.
pub(crate) fn ask(directory: &Path, proc: &Proc) -> Result<(), Failure> {
    let shown = directory.display();
    let state = fs::read_to_string(directory.join(STATE)).map_err(|error| {
        Failure::Failed(format!(
            "no agent keeps its state in {shown} ({error}): is one running, with this --state-dir?"
        ))
    })?;
    let Some(between_looks) = state.strip_prefix(ARMED) else {
        return Err(Failure::Failed(format!("the agent is {}", state.trim_end())));
    };
    let between_looks = Duration::from_millis(between_looks.trim().parse().unwrap_or_default());
    let pid = proc.own_pid();
    let (answer, started) = (directory.join(format!("{SEEN}{pid}")), proc.process(pid).started());
    let deadline = Instant::now() + PATIENCE + between_looks;
    while Instant::now() < deadline {
        let seen = fs::read_to_string(&answer).ok().and_then(|it| it.parse().ok());
        if seen.is_some() && seen == started {
            // The agent takes away what is left.
            let _ = fs::remove_file(&answer);
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(Failure::Failed(format!(
        "the agent whose state is in {shown} has not noticed this process: it hears of no process, or has ended"
    )))
}
