//! A real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback ports.

mod credentials;
mod error;
mod kubectl;
mod options;
mod servers;
mod startup;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use kube::Client;

pub use self::error::StartError;
pub use self::options::{ControlPlaneOptions, User};

use self::credentials::Credentials;
use self::servers::{Blueprint, PortNumbers};
use self::startup::Started;
use crate::access::Access;
use crate::artifacts::Artifacts;
use crate::audit::AuditLog;
use crate::ports::Port;
use crate::process::{GRACE, Process, Signal};
use crate::readiness::{ATTEMPTS, await_success};
use crate::run_dir::RunDir;

/// The user that may do everything.
pub const ADMIN: &str = "admin";
/// The user that Cluster API's manager runs as.
pub const CLUSTER_API: &str = "cluster-api";
/// The user that the simulated provider runs as.
pub const SIMULATED_PROVIDER: &str = "simulated-provider";
/// The user that KWOK runs as.
pub const KWOK: &str = "kwok";
/// The user, allowed everything, in the kubeconfig Secrets of workload clusters.
pub const WORKLOAD_ADMIN: &str = "workload-admin";
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

const API_SERVER: &str = "kube-apiserver";

/// A running control plane. Dropping it kills its servers; the logs stay in the run directory.
///
/// It holds addresses and tokens, never a client: a client lives and dies with the tokio runtime it was made in, and a
/// control plane outlives the runtimes of many tests.
pub struct ControlPlane {
    // In the order of the fields things are dropped: servers first, their ports and data after them.
    servers: Mutex<Vec<Process>>,
    admin: Access,
    tokens: BTreeMap<String, String>,
    blueprint: Blueprint,
    numbers: PortNumbers,
    _ports: [Port; 3],
    run: RunDir,
}

impl ControlPlane {
    /// Starts the servers, building them first if that was never done, and returns when they serve.
    ///
    /// # Guarantees
    /// When this returns, the API server is ready and, unless left out, the controller manager works. The servers end
    /// when the value is dropped and when this process dies, however it dies.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, StartError> {
        let artifacts = startup::ensure_artifacts().await?;
        let run = RunDir::create(artifacts.cache(), &options.name).map_err(StartError::io(artifacts.cache()))?;
        let certificates = run.subdirectory("certificates").map_err(StartError::io(run.path()))?;
        let credentials = Credentials::write(&certificates, &options.users)?;
        let tokens = credentials.tokens.clone();
        let blueprint = Blueprint { artifacts, options, credentials, run: run.path().to_owned() };
        let mut attempt = 1;
        loop {
            match startup::start_servers(&blueprint, &tokens, &run).await {
                Ok(Started { servers, admin, ports, numbers }) => {
                    let servers = Mutex::new(servers);
                    return Ok(Self { servers, admin, tokens, blueprint, numbers, _ports: ports, run });
                }
                Err(error) if error.is_port_taken() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A new client as admin, for the current tokio runtime.
    pub fn client(&self) -> Client {
        self.admin.client()
    }

    /// How to reach the API server as admin.
    pub fn admin(&self) -> &Access {
        &self.admin
    }

    /// How to reach the API server as one of its users; `None` if it was not started with such a user.
    pub fn access(&self, user: &str) -> Option<Access> {
        self.tokens.get(user).map(|token| self.admin.with_token(token))
    }

    /// Writes a kubeconfig into the run directory, `name` being its file's name, and gives its path.
    pub fn write_kubeconfig(&self, name: &str, access: &Access) -> Result<PathBuf, StartError> {
        startup::write_kubeconfig(&self.run, name, access)
    }

    /// The path of a kubeconfig for one of the users the control plane was started with.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf, StartError> {
        let access = self.access(user).ok_or_else(|| StartError::UnknownUser { name: user.to_owned() })?;
        self.write_kubeconfig(user, &access)
    }

    /// Who signs its certificates.
    pub(crate) fn authority(&self) -> &crate::certificates::Authority {
        &self.blueprint.credentials.authority
    }

    /// Whether it was started with [`ControlPlaneOptions::for_real_nodes`].
    pub(crate) fn takes_real_nodes(&self) -> bool {
        self.blueprint.options.pods == options::Pods::OnRealNodes
    }

    /// What the API server was asked, by whom.
    pub fn audit(&self) -> AuditLog {
        AuditLog::at(self.blueprint.audit_log())
    }

    /// Logs, certificates, kubeconfigs and the audit log of this run.
    pub fn run_dir(&self) -> &RunDir {
        &self.run
    }

    /// Where its servers write their logs; a program under test may write its own there.
    pub fn logs(&self) -> PathBuf {
        self.run.path().join("logs")
    }

    /// The programs it runs on.
    pub fn artifacts(&self) -> &Artifacts {
        &self.blueprint.artifacts
    }

    /// The process ids of its servers.
    pub fn pids(&self) -> Vec<u32> {
        self.servers().iter().map(Process::pid).collect()
    }

    /// Fails, with the end of its log, if a server has ended by itself.
    pub fn check_alive(&self) -> Result<(), StartError> {
        self.servers().iter_mut().try_for_each(|server| Ok(server.check_alive()?))
    }

    /// Kills the API server: from now on connections are refused. [`Self::start_api_server`] brings it back.
    pub fn kill_api_server(&self) {
        self.servers().retain(|server| server.name() != API_SERVER);
    }

    /// Starts a killed API server again, at the same address and with the same data, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), StartError> {
        self.kill_api_server();
        let mut server = Process::spawn(API_SERVER, &mut self.blueprint.api_server(self.numbers), &self.logs())?;
        let ready = await_success(&mut server, &self.client(), "/readyz").await;
        self.servers().push(server);
        ready
    }

    /// Sends a signal to the API server: SIGSTOP leaves its clients without an answer until SIGCONT.
    pub fn signal_api_server(&self, signal: Signal) -> io::Result<()> {
        self.servers().iter().filter(|server| server.name() == API_SERVER).try_for_each(|server| server.signal(signal))
    }

    /// Ends the servers in order, giving each a while. Dropping the control plane is the quicker way.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            let servers = std::mem::take(&mut *self.servers());
            servers.into_iter().rev().for_each(|server| server.stop(GRACE));
        });
        // It fails only if the runtime is shutting down, and then the servers are dropped with it.
        let _ = stopped.await;
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Process>> {
        self.servers.lock().expect("no holder panics")
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ControlPlane").field("run", &self.run.path()).finish_non_exhaustive()
    }
}
