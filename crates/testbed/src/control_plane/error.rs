//! Errors of setting up a testbed.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use crate::artifacts::ArtifactError;
use crate::node::Unavailable;
use crate::process::ProcessError;
use crate::wait::WaitError;

/// Why a control plane, or something on top of it, did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{name} is not ready in time: {source}; see its log {}", log.display())]
    NotReady {
        name: String,
        log: PathBuf,
        /// The last error of the readiness probe.
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("cannot create certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot access {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot start {server}: {source}")]
    Listen { server: &'static str, source: io::Error },
    #[error("the control plane has no user {name}: add it with ControlPlaneOptions::user")]
    UnknownUser { name: String },
    #[error("cannot {action}: {source}")]
    Api {
        /// Completes "cannot …", for example "create Cluster edge".
        action: String,
        source: Box<kube::Error>,
    },
    #[error(transparent)]
    NodeUnavailable(#[from] Unavailable),
    #[error("a real node needs a control plane that was started with ControlPlaneOptions::for_real_nodes")]
    NoRealNodes,
    #[error("cannot {action}: {status}\n{stderr}")]
    Program {
        /// Completes "cannot …", for example "import image idea:test".
        action: String,
        status: std::process::ExitStatus,
        stderr: String,
    },
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("cannot parse {}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<serde_saphyr::Error> },
    #[error("cannot find RUSTFLAGS in {}", path.display())]
    NoRustFlags { path: PathBuf },
    #[error("cannot apply {}: {stderr}", path.display())]
    Apply {
        path: PathBuf,
        /// What kubectl printed.
        stderr: String,
    },
    #[error("CustomResourceDefinition {name} was not established in time")]
    NotEstablished { name: String },
    #[error("cannot watch CustomResourceDefinition {name}: {source}")]
    Watch { name: String, source: Box<kube::runtime::wait::Error> },
}

impl StartError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn listen(server: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Listen { server, source }
    }

    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { action: action.into(), source: Box::new(source) }
    }

    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Process(error) if error.is_port_taken())
    }
}
