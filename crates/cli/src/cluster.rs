//! Objects of the cluster, read with the caller's own permissions.

use std::path::PathBuf;

use fivespot_api::ScheduledMachine;
use fivespot_cli_support::Failure;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

/// Which cluster and namespace, as kubectl's own options say it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) namespace: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Reads one ScheduledMachine.
pub(crate) fn get(target: &Target, name: &str) -> Result<ScheduledMachine, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("starting the client", &error))?;
    runtime.block_on(async {
        let config = config(target).await?;
        let namespace = target.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| Failure::failed("kubeconfig", &error))?;
        let machines: Api<ScheduledMachine> = Api::namespaced(client, &namespace);
        machines.get(name).await.map_err(|error| refused(&error, &server, &namespace, name))
    })
}

async fn config(target: &Target) -> Result<Config, Failure> {
    let options = KubeConfigOptions { context: target.context.clone(), ..KubeConfigOptions::default() };
    let unusable = |error: kube::config::KubeconfigError| {
        Failure::bad_input(format!("kubeconfig: {}", fivespot_cli_support::chain(&error)))
    };
    let kubeconfig = match &target.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map_err(unusable)?,
        None => Kubeconfig::read().map_err(|error| match error {
            error @ kube::config::KubeconfigError::ReadConfig(..) => Failure::bad_input(format!(
                "no cluster to ask: {} (set KUBECONFIG, or read a file with -f)",
                fivespot_cli_support::chain(&error)
            )),
            other => unusable(other),
        })?,
    };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
}

/// What the API server's refusal means to the person who asked.
fn refused(error: &kube::Error, server: &str, namespace: &str, name: &str) -> Failure {
    match error {
        kube::Error::Api(status)
            if status.code == 404 && status.details.as_ref().is_some_and(|it| !it.name.is_empty()) =>
        {
            Failure::Failed(format!(
                "no ScheduledMachine {name:?} in namespace {namespace:?} (see 'kubectl get scheduledmachines -A')"
            ))
        }
        kube::Error::Api(status) if status.code == 404 => Failure::Failed(format!(
            "{server} does not know ScheduledMachines: install deploy/crds/scheduledmachine.yaml first"
        )),
        kube::Error::Api(status) => Failure::Failed(format!("{server} refused: {}", status.message)),
        other => Failure::failed(format!("asking {server}"), other),
    }
}
