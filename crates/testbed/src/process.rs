//! A server as a child process with a log file, which never outlives this process.
//!
//! [`Process::stop`] sends SIGTERM, and SIGKILL after a timeout. Dropping the [`Process`] kills it. The kernel kills it
//! when this process dies, even by SIGKILL. If `FIVESPOT_OWNER_PID` names a process (the `cargo xtask` that started the
//! tests), this process exits when that one does.

mod owner;
mod spawn;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

pub use self::owner::OWNER_PID;
pub(crate) use self::spawn::spawn_child;

/// How long [`Process::stop`] waits after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(5);

/// The standard library has no wait with a timeout, so [`Process::stop`] polls.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

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
    #[error("cannot start {name}: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("{name} exited unexpectedly ({status}); the end of {}:\n{tail}", log.display())]
    Exited {
        name: String,
        status: ExitStatus,
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
}

impl ProcessError {
    /// Whether the server's port was taken, so that another attempt with other ports may succeed.
    pub fn is_port_taken(&self) -> bool {
        matches!(self, Self::Exited { tail, .. } if tail.contains("address already in use"))
    }
}

/// Go programs collect garbage less often than by default, where kube-apiserver spends a fifth of its CPU time on it: a
/// testbed has more memory than cores. The limit matters with 10,000 objects only.
const GARBAGE_COLLECTION: [(&str, &str); 2] = [("GOGC", "400"), ("GOMEMLIMIT", "6GiB")];

impl Process {
    /// Starts `command` with its output appended to `<logs>/<name>.log`.
    pub fn spawn(name: &str, command: &mut Command, logs: &Path) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Spawn { name: name.to_owned(), source };
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        for (variable, value) in GARBAGE_COLLECTION {
            if std::env::var_os(variable).is_none() {
                command.env(variable, value);
            }
        }
        let child = spawn_child(command.stdin(Stdio::null()).stdout(file).stderr(errors)).map_err(failed)?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The path of the log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails, with the end of the log, if the server has exited.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ProcessError::Exited {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                tail: tail(&self.log, 30),
            }),
            Ok(None) => Ok(()),
            Err(source) => Err(ProcessError::Spawn { name: self.name.clone(), source }),
        }
    }

    /// `None` while the server is running.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends a signal. SIGSTOP makes a server hang until SIGCONT.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), signal).map_err(io::Error::from)
    }

    /// Sends SIGTERM, waits for at most `grace`, then sends SIGKILL. Blocks until the child is reaped.
    pub fn stop(mut self, grace: Duration) {
        let until = Instant::now() + grace;
        if self.signal(Signal::TERM).is_ok() {
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has already been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines of a file; empty if it does not exist.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
