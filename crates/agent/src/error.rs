//! Why the agent ends, and with which exit code.

use std::io;
use std::path::PathBuf;

use fivespot_cli_support::{Failure, chain};

use crate::client::ClientConfigError;
use crate::config::ConfigError;
use crate::machine_id::MachineIdError;
use crate::probe::ProbeError;
use crate::signals::SignalError;
use crate::signals::process::NetlinkError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(
        "--poll-interval (RECLAIM_POLL_INTERVAL) has no effect with --detector netlink, which does not poll: remove it, or set \
         --detector (RECLAIM_DETECTOR) to auto or poll"
    )]
    UnusedPollInterval,
    #[error("cannot read --config {}: {source}", path.display())]
    ReadConfigFile { path: PathBuf, source: io::Error },
    #[error("invalid agent configuration in {config_source}: {source}")]
    InvalidConfig { config_source: String, source: ConfigError },
    #[error("cannot read --proc-root {}: {source}", path.display())]
    ReadProcRoot { path: PathBuf, source: io::Error },
    #[error("--proc-root {} contains no process; is it a mounted procfs?", path.display())]
    EmptyProcRoot { path: PathBuf },
    #[error(
        "--proc-root {} hides the processes of other users from the agent, so their programs cannot be detected: mount it \
         without hidepid, or with the gid of a group of the agent",
        path.display()
    )]
    HiddenProcesses { path: PathBuf },
    #[error(
        "the name of the Node is missing: set --node-name (NODE_NAME), or use --config FILE with --dry-run to run without a \
         cluster"
    )]
    MissingNodeName,
    #[error("invalid --node-name {name:?}: a Node name consists of lower-case letters, digits, '-' and '.'")]
    InvalidNodeName { name: String },
    #[error("{0}; set --machine-id-path, or --skip-host-id-check to trust --node-name alone")]
    MachineId(#[source] MachineIdError),
    #[error(transparent)]
    ClientConfig(#[from] ClientConfigError),
    #[error("cannot create a client: {0}")]
    Client(#[source] kube::Error),
    #[error("cannot read {config_map}: {source}")]
    ReadConfigMap { config_map: String, source: kube::Error },
    #[error("cannot use --detector netlink: {0}")]
    Detector(#[from] NetlinkError),
    #[error("cannot start the async runtime: {0}")]
    Runtime(#[source] io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot install the signal handler: {0}")]
    Shutdown(#[source] io::Error),
    #[error(transparent)]
    Signal(#[from] SignalError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Exit code 2 for what the user has to change, 1 for everything else.
impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::UnusedPollInterval
            | RunError::ReadConfigFile { .. }
            | RunError::InvalidConfig { .. }
            | RunError::ReadProcRoot { .. }
            | RunError::EmptyProcRoot { .. }
            | RunError::HiddenProcesses { .. }
            | RunError::MissingNodeName
            | RunError::InvalidNodeName { .. }
            | RunError::MachineId(_)
            | RunError::ClientConfig(_) => Failure::BadInput(chain(&error)),
            RunError::Client(_)
            | RunError::ReadConfigMap { .. }
            | RunError::Detector(_)
            | RunError::Runtime(_)
            | RunError::Thread(_)
            | RunError::Shutdown(_)
            | RunError::Signal(_)
            | RunError::Probe(_) => Failure::Failed(chain(&error)),
        }
    }
}
