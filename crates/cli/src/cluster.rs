//! Reads ScheduledMachines from a cluster, with the permissions of the caller.

use std::io;
use std::path::PathBuf;

use fivespot_api::ScheduledMachine;
use fivespot_cli_support::{Failure, chain};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Status;
use kube::{Api, Client, Config};

/// The options of kubectl that select a cluster and a namespace.
#[derive(Debug)]
pub(crate) struct ClusterOptions {
    pub(crate) namespace: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("no cluster is configured: {} (set KUBECONFIG, or use -f FILE)", chain(source))]
    NoKubeconfig { source: KubeconfigError },
    #[error("cannot use kubeconfig: {}", chain(source))]
    InvalidKubeconfig { source: KubeconfigError },
    #[error("cannot start the client: {source}")]
    Runtime { source: io::Error },
    #[error("cannot create a client for {server}: {source}")]
    Client { server: String, source: kube::Error },
    #[error("ScheduledMachine {name:?} not found in namespace {namespace:?} (see 'kubectl get scheduledmachines -A')")]
    NotFound { name: String, namespace: String },
    #[error("{server} does not serve ScheduledMachines: install deploy/crds/scheduledmachine.yaml first")]
    CrdNotInstalled { server: String },
    #[error("{server} rejected the request: {}", source.message)]
    Rejected { server: String, source: Box<Status> },
    #[error("cannot get ScheduledMachine {name:?} from {server}: {source}")]
    RequestFailed { name: String, server: String, source: kube::Error },
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::NoKubeconfig { .. } | ClusterError::InvalidKubeconfig { .. } => {
                Failure::BadInput(error.to_string())
            }
            ClusterError::Rejected { .. } => Failure::Failed(error.to_string()),
            ClusterError::Runtime { .. }
            | ClusterError::Client { .. }
            | ClusterError::NotFound { .. }
            | ClusterError::CrdNotInstalled { .. }
            | ClusterError::RequestFailed { .. } => Failure::Failed(chain(&error)),
        }
    }
}

/// Reads one ScheduledMachine.
pub(crate) fn get(options: &ClusterOptions, name: &str) -> Result<ScheduledMachine, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ClusterError::Runtime { source })?;
    runtime.block_on(async {
        let config = config(options).await?;
        let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client =
            Client::try_from(config).map_err(|source| ClusterError::Client { server: server.clone(), source })?;
        let machines: Api<ScheduledMachine> = Api::namespaced(client, &namespace);
        machines.get(name).await.map_err(|error| get_error(error, server, namespace, name))
    })
}

async fn config(options: &ClusterOptions) -> Result<Config, ClusterError> {
    let invalid = |source| ClusterError::InvalidKubeconfig { source };
    let kubeconfig = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map_err(invalid)?,
        None => Kubeconfig::read().map_err(|source| match source {
            source @ KubeconfigError::ReadConfig(..) => ClusterError::NoKubeconfig { source },
            source => invalid(source),
        })?,
    };
    let options = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(invalid)
}

/// Distinguishes a missing object from a missing CRD: only the former names the object.
fn get_error(error: kube::Error, server: String, namespace: String, name: &str) -> ClusterError {
    let name = name.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            if status.details.as_ref().is_some_and(|details| !details.name.is_empty()) {
                ClusterError::NotFound { name, namespace }
            } else {
                ClusterError::CrdNotInstalled { server }
            }
        }
        kube::Error::Api(source) => ClusterError::Rejected { server, source },
        source => ClusterError::RequestFailed { name, server, source },
    }
}
