//! Starting the servers of a control plane, each when what it needs is there.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

use super::servers::{Blueprint, PortNumbers};
use super::{ADMIN, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, StartError};
use crate::access::Access;
use crate::artifacts::{Artifacts, ProgressPrinter};
use crate::ports::Port;
use crate::process::Process;
use crate::readiness::{await_listener, await_start, await_success};
use crate::run_dir::RunDir;

/// The programs, built with their progress shown if they were never built.
pub(super) async fn ensure_artifacts() -> Result<Artifacts, StartError> {
    let found = tokio::task::spawn_blocking(|| {
        let mut printer = ProgressPrinter::new();
        Artifacts::ensure(&mut |progress| printer.show(&progress))
    });
    Ok(found.await.expect("finding the programs does not panic")?)
}

/// Servers that serve, and how to reach them.
pub(super) struct Started {
    pub(super) servers: Vec<Process>,
    pub(super) admin: Access,
    pub(super) ports: [Port; 3],
    pub(super) numbers: PortNumbers,
}

/// One attempt, with ports of its own.
pub(super) async fn start_servers(
    blueprint: &Blueprint,
    tokens: &BTreeMap<String, String>,
    run: &RunDir,
) -> Result<Started, StartError> {
    let claim = || Port::claim(blueprint.artifacts.cache()).map_err(StartError::io(blueprint.artifacts.cache()));
    let ports = [claim()?, claim()?, claim()?];
    let [etcd_client, etcd_peer, api_server] = ports.each_ref().map(Port::number);
    let numbers = PortNumbers { etcd_client, etcd_peer, api_server };
    let logs = run.subdirectory("logs").map_err(StartError::io(run.path()))?;
    // What an attempt that found its port taken has left.
    let _ = fs::remove_dir_all(run.path().join("etcd"));

    let mut etcd = Process::spawn("etcd", &mut blueprint.etcd(numbers), &logs)?;
    await_listener(&mut etcd, etcd_client).await?;
    let mut servers = vec![etcd];

    let authority = &blueprint.credentials.authority;
    let admin = Access::new(format!("https://127.0.0.1:{api_server}"), authority, tokens[ADMIN].clone());
    let mut server = Process::spawn(API_SERVER, &mut blueprint.api_server(numbers), &logs)?;
    let ready = await_success(&mut server, &admin.client(), "/readyz").await;
    servers.push(server);
    ready?;

    let kubeconfig = |user: &str| write_kubeconfig(run, user, &admin.with_token(&tokens[user]));
    if blueprint.options.scheduler {
        let mut command = blueprint.scheduler(&kubeconfig(SCHEDULER)?);
        servers.push(Process::spawn("kube-scheduler", &mut command, &logs)?);
    }
    if blueprint.options.controller_manager {
        let mut command = blueprint.controller_manager(&kubeconfig(CONTROLLER_MANAGER)?);
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
    // Renamed into place: another test may be reading it.
    let mut file = tempfile::NamedTempFile::new_in(&directory).map_err(StartError::io(&directory))?;
    file.write_all(access.kubeconfig().as_bytes()).map_err(StartError::io(&path))?;
    file.persist(&path).map_err(|error| StartError::io(&path)(error.error))?;
    Ok(path)
}

/// The `ServiceAccount` that the controller manager makes in every namespace tells that its controllers run.
async fn await_controller_manager(admin: &Access, manager: &mut Process) -> Result<(), StartError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.client(), "default");
    await_start(manager, async || accounts.get("default").await.map(drop).map_err(|error| error.to_string())).await
}
