//! A control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback ports.

mod credentials;
mod error;
mod kubectl;
mod options;
mod servers;
mod startup;
mod storage;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use kube::Client;

pub use self::error::StartError;
pub use self::options::{ControlPlaneOptions, User};
pub use self::storage::EtcdSnapshot;

use self::credentials::Credentials;
use self::servers::{PortNumbers, ServerConfig};
use self::startup::Started;
use crate::access::Access;
use crate::artifacts::Artifacts;
use crate::audit::AuditLog;
use crate::ports::Port;
use crate::process::{GRACE, Process, Signal};
use crate::readiness::{ATTEMPTS, await_success};
use crate::run_dir::RunDir;

/// The cluster administrator.
pub const ADMIN: &str = "admin";
/// The user of the Cluster API manager.
pub const CLUSTER_API: &str = "cluster-api";
/// The user of the simulated provider.
pub const SIMULATED_PROVIDER: &str = "simulated-provider";
/// The user of KWOK.
pub const KWOK: &str = "kwok";
/// The administrator in the kubeconfig Secrets of workload clusters.
pub const WORKLOAD_ADMIN: &str = "workload-admin";
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

const API_SERVER: &str = "kube-apiserver";

/// A running control plane. Dropping it kills its servers; the logs stay in the run directory.
///
/// It holds addresses and tokens but no client: a client is bound to one tokio runtime, and every test has its own.
pub struct ControlPlane {
    // Fields are dropped in this order: the servers before their ports and data.
    servers: Mutex<Vec<Process>>,
    admin: Access,
    tokens: BTreeMap<String, String>,
    config: ServerConfig,
    numbers: PortNumbers,
    _ports: [Port; 3],
    run: RunDir,
}

impl ControlPlane {
    /// Starts the servers and waits until they are ready. Builds them if necessary.
    ///
    /// # Guarantees
    /// When this returns, the API server is ready and the controller manager, unless disabled, is working. The servers
    /// are killed when the value is dropped and when this process dies, even by SIGKILL.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, StartError> {
        let artifacts = startup::ensure_artifacts().await?;
        let run = RunDir::create(artifacts.cache(), &options.name).map_err(StartError::io(artifacts.cache()))?;
        let certificates = run.subdirectory("certificates").map_err(StartError::io(run.path()))?;
        let credentials = Credentials::write(&certificates, &options.users)?;
        let tokens = credentials.tokens.clone();
        let config = ServerConfig { artifacts, options, credentials, run: run.path().to_owned() };
        let mut attempt = 1;
        loop {
            match startup::start_servers(&config, &tokens, &run).await {
                Ok(Started { servers, admin, ports, numbers }) => {
                    let servers = Mutex::new(servers);
                    return Ok(Self { servers, admin, tokens, config, numbers, _ports: ports, run });
                }
                Err(error) if error.is_port_taken() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A new admin client, bound to the current tokio runtime.
    pub fn client(&self) -> Client {
        self.admin.client()
    }

    /// Credentials of the administrator.
    pub fn admin(&self) -> &Access {
        &self.admin
    }

    /// Credentials of a user; `None` if the control plane was started without that user.
    pub fn access(&self, user: &str) -> Option<Access> {
        self.tokens.get(user).map(|token| self.admin.with_token(token))
    }

    /// Writes `<name>.kubeconfig` into the run directory and returns its path.
    pub fn write_kubeconfig(&self, name: &str, access: &Access) -> Result<PathBuf, StartError> {
        startup::write_kubeconfig(&self.run, name, access)
    }

    /// Writes the kubeconfig of a user and returns its path.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf, StartError> {
        let access = self.access(user).ok_or_else(|| StartError::UnknownUser { name: user.to_owned() })?;
        self.write_kubeconfig(user, &access)
    }

    pub(crate) fn authority(&self) -> &crate::certificates::Authority {
        &self.config.credentials.authority
    }

    /// Whether it was started with [`ControlPlaneOptions::for_real_nodes`].
    pub(crate) fn accepts_real_nodes(&self) -> bool {
        self.config.options.pods == options::Pods::OnRealNodes
    }

    /// Whether it was started with [`ControlPlaneOptions::rare_heartbeats`].
    pub(crate) fn has_rare_heartbeats(&self) -> bool {
        self.config.options.rare_heartbeats
    }

    pub fn audit(&self) -> AuditLog {
        AuditLog::at(self.config.audit_log())
    }

    /// The directory with logs, certificates, kubeconfigs and the audit log.
    pub fn run_dir(&self) -> &RunDir {
        &self.run
    }

    /// The log directory of the servers, also for the logs of programs under test.
    pub fn logs(&self) -> PathBuf {
        self.run.path().join("logs")
    }

    pub fn artifacts(&self) -> &Artifacts {
        &self.config.artifacts
    }

    /// Process IDs of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.servers().iter().map(Process::pid).collect()
    }

    /// Names and process IDs of the servers.
    pub fn processes(&self) -> Vec<(String, u32)> {
        self.servers().iter().map(|server| (server.name().to_owned(), server.pid())).collect()
    }

    /// Fails, with the end of the log, if a server has exited.
    pub fn check_alive(&self) -> Result<(), StartError> {
        self.servers().iter_mut().try_for_each(|server| Ok(server.check_alive()?))
    }

    /// Kills the API server: connections are refused until [`Self::start_api_server`].
    pub fn kill_api_server(&self) {
        self.servers().retain(|server| server.name() != API_SERVER);
    }

    /// Restarts the API server with the same address and data, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<(), StartError> {
        self.kill_api_server();
        let mut server = Process::spawn(API_SERVER, &mut self.config.api_server(self.numbers), &self.logs())?;
        let ready = await_success(&mut server, &self.client(), "/readyz").await;
        self.servers().push(server);
        ready
    }

    /// Sends a signal to the API server. After SIGSTOP requests hang until SIGCONT.
    pub fn signal_api_server(&self, signal: Signal) -> io::Result<()> {
        self.servers().iter().filter(|server| server.name() == API_SERVER).try_for_each(|server| server.signal(signal))
    }

    /// Stops the servers in order with SIGTERM. Dropping the control plane is faster.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            let servers = std::mem::take(&mut *self.servers());
            servers.into_iter().rev().for_each(|server| server.stop(GRACE));
        });
        // Fails only if the runtime is shutting down, which drops the servers.
        let _ = stopped.await;
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Process>> {
        self.servers.lock().expect("no thread panics while holding the lock")
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ControlPlane").field("run", &self.run.path()).finish_non_exhaustive()
    }
}
