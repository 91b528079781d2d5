//! Why a testbed does not run.

use std::io;
use std::path::{Path, PathBuf};

use crate::artifacts::ArtifactError;
use crate::process::ProcessError;

/// Why a control plane, or something on top of it, did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The programs are not there.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// A server did not start, or ended at once.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A server runs but does not serve.
    #[error("{name} is not ready in time: {seen}; its log is {}", log.display())]
    NotReady {
        /// The server.
        name: String,
        /// What the last look at it saw.
        seen: String,
        /// Its log.
        log: PathBuf,
    },
    /// A certificate could not be made.
    #[error("making certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A file or directory of the run could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The control plane was not started with this user.
    #[error("the control plane has no user {name}; give it one with ControlPlaneOptions::user")]
    UnknownUser {
        /// The name that was asked for.
        name: String,
    },
    /// The API server refused something that setting up needs.
    #[error("{doing}: {source}")]
    Api {
        /// What was being done.
        doing: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// There can be no real node here.
    #[error(transparent)]
    NodeUnavailable(#[from] crate::node::Unavailable),
    /// The control plane would not know a kubelet.
    #[error("a real node needs a control plane that was started with ControlPlaneOptions::for_real_nodes")]
    NoRealNodes,
    /// A program that a node needs ran and failed.
    #[error("{doing} failed ({status}):\n{output}")]
    Program {
        /// What was being done.
        doing: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it printed.
        output: String,
    },
    /// What was waited for did not come.
    #[error(transparent)]
    Wait(crate::wait::WaitError),
    /// A manifest could not be read, or was refused.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl StartError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { doing: doing.into(), source: Box::new(source) }
    }

    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Process(error) if error.is_port_taken())
    }
}
