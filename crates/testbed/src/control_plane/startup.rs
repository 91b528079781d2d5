//! Starts the servers of a control plane, each when its dependencies are ready.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

use super::servers::{PortNumbers, ServerConfig};
use super::{ADMIN, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, StartError};
use crate::access::Access;
use crate::artifacts::{Artifacts, ProgressPrinter};
use crate::ports::Port;
use crate::process::Process;
use crate::readiness::{await_listener, await_start, await_success};
use crate::run_dir::RunDir;

/// Finds the programs, and builds them with visible progress if necessary.
pub(super) async fn ensure_artifacts() -> Result<Artifacts, StartError> {
    let artifacts = tokio::task::spawn_blocking(|| {
        let mut printer = ProgressPrinter::new();
        Artifacts::ensure(&mut |progress| printer.show(&progress))
    });
    Ok(artifacts.await.expect("building the programs does not panic")?)
}

/// Ready servers, and the credentials of their administrator.
pub(super) struct Started {
    pub(super) servers: Vec<Process>,
    pub(super) admin: Access,
    pub(super) ports: [Port; 3],
    pub(super) numbers: PortNumbers,
}

/// One attempt with newly claimed ports.
pub(super) async fn start_servers(
    config: &ServerConfig,
    tokens: &BTreeMap<String, String>,
    run: &RunDir,
) -> Result<Started, StartError> {
    let claim = || Port::claim(config.artifacts.cache()).map_err(StartError::io(config.artifacts.cache()));
    let ports = [claim()?, claim()?, claim()?];
    let [etcd_client, etcd_peer, api_server] = ports.each_ref().map(Port::number);
    let numbers = PortNumbers { etcd_client, etcd_peer, api_server };
    let logs = run.subdirectory("logs").map_err(StartError::io(run.path()))?;
    // Data of a previous attempt whose port was taken.
    let _ = fs::remove_dir_all(config.etcd_data());

    let mut etcd = Process::spawn("etcd", &mut config.etcd(numbers), &logs)?;
    await_listener(&mut etcd, etcd_client).await?;
    let mut servers = vec![etcd];

    let authority = &config.credentials.authority;
    let admin = Access::new(format!("https://127.0.0.1:{api_server}"), authority, tokens[ADMIN].clone());
    let mut server = Process::spawn(API_SERVER, &mut config.api_server(numbers), &logs)?;
    let ready = await_success(&mut server, &admin.client(), "/readyz").await;
    servers.push(server);
    ready?;

    let kubeconfig = |user: &str| write_kubeconfig(run, user, &admin.with_token(&tokens[user]));
    if config.options.scheduler {
        let mut command = config.scheduler(&kubeconfig(SCHEDULER)?);
        servers.push(Process::spawn("kube-scheduler", &mut command, &logs)?);
    }
    if config.options.controller_manager {
        let mut command = config.controller_manager(&kubeconfig(CONTROLLER_MANAGER)?);
        let mut manager = Process::spawn("kube-controller-manager", &mut command, &logs)?;
        await_controller_manager(&admin, &mut manager).await?;
        servers.push(manager);
    }
    servers.iter_mut().try_for_each(Process::check_alive)?;
    Ok(Started { servers, admin, ports, numbers })
}

pub(super) fn write_kubeconfig(run: &RunDir, name: &str, access: &Access) -> Result<PathBuf, StartError> {
    let directory = run.subdirectory("kubeconfigs").map_err(StartError::io(run.path()))?;
    let path = directory.join(format!("{}.kubeconfig", name.replace(':', "-")));
    // Renamed into place, because another test may be reading it.
    let mut file = tempfile::NamedTempFile::new_in(&directory).map_err(StartError::io(&directory))?;
    file.write_all(access.kubeconfig().as_bytes()).map_err(StartError::io(&path))?;
    file.persist(&path).map_err(|error| StartError::io(&path)(error.error))?;
    Ok(path)
}

/// Waits for the `default` ServiceAccount, which the controller manager creates once its controllers run.
async fn await_controller_manager(admin: &Access, manager: &mut Process) -> Result<(), StartError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.client(), "default");
    await_start(manager, async || accounts.get("default").await.map(drop)).await
}
