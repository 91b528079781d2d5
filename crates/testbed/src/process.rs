//! A server as a child process: with a log file, and never outliving us.
//!
//! Three things end a child. [`Process::stop`] asks it to, and insists after a while. Dropping the [`Process`] kills it.
//! And the kernel kills it when this process dies, however it dies. When `FIVESPOT_OWNER_PID` names a process (a
//! `cargo xtask` that started the tests), this process also ends when that one does.

mod bound;
mod lifeline;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

pub(crate) use self::bound::spawn_bound;
pub use self::lifeline::OWNER_PID;

/// How long a server may take to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(5);

/// Between two looks at a child that was asked to end. The kernel offers no wait with a deadline on a child.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Why a server is not running.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started at all.
    #[error("{name} could not be started: {source}")]
    Spawn {
        /// The server.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{name} ended early ({status}); the end of {}:\n{tail}", log.display())]
    EndedEarly {
        /// The server.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// Its log file.
        log: PathBuf,
        /// The end of its log.
        tail: String,
    },
}

impl ProcessError {
    /// Whether the server found its port taken, so that another attempt with other ports may succeed.
    pub fn is_port_taken(&self) -> bool {
        matches!(self, Self::EndedEarly { tail, .. } if tail.contains("address already in use"))
    }
}

impl Process {
    /// Starts `command` with its output appended to `<logs>/<name>.log`.
    pub fn spawn(name: &str, command: &mut Command, logs: &Path) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Spawn { name: name.to_owned(), source };
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        let child = spawn_bound(command.stdin(Stdio::null()).stdout(file).stderr(errors)).map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The server's name, as in its log file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails, with the end of the log, if the server has ended.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ProcessError::EndedEarly {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: tail(&self.log, 30),
            }),
            Ok(None) => Ok(()),
            Err(source) => Err(ProcessError::Spawn { name: self.name.clone(), source }),
        }
    }

    /// How it ended, once it has.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends a signal: SIGSTOP and SIGCONT make a server that hangs.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).map_err(io::Error::from)
    }

    /// SIGTERM, a bounded wait, SIGKILL; the child is reaped when this returns. Blocks for at most `grace`.
    pub fn stop(mut self, grace: Duration) {
        let until = Instant::now() + grace;
        if self.signal(Signal::TERM).is_ok() {
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a file that may not exist.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
