//! The controller as a separate process with its own ServiceAccount, as it is shipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, Result, anyhow};
use fivespot_testbed::ControlPlane;
use fivespot_testbed::ports::Port;
use fivespot_testbed::process::{GRACE, Process};

const NAME: &str = "5spot";

/// A running controller.
pub(super) struct Controller {
    process: Mutex<Process>,
    log: PathBuf,
    metrics_port: Port,
    _health_port: Port,
}

impl Controller {
    pub(super) async fn start(plane: &ControlPlane, program: &Path) -> Result<Self> {
        let access = plane.service_account("5spot-system", "5spot-controller").await;
        let access = access.context("cannot get a token for ServiceAccount 5spot-system/5spot-controller")?;
        let kubeconfig = plane.write_kubeconfig(NAME, &access)?;
        let claim_port = || Port::claim(plane.artifacts().cache()).context("cannot find a free port");
        let (metrics_port, health_port) = (claim_port()?, claim_port()?);
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", kubeconfig)
            .env("NO_COLOR", "1")
            .arg("--log-format=text")
            .arg(format!("--metrics-port={}", metrics_port.number()))
            .arg(format!("--health-port={}", health_port.number()));
        let process = Process::spawn(NAME, &mut command, &plane.logs())?;
        let log = process.log().to_owned();
        Ok(Controller { process: Mutex::new(process), log, metrics_port, _health_port: health_port })
    }

    /// Fails if the controller has exited.
    pub(super) fn check_alive(&self) -> Result<()> {
        let mut process = self.process.lock().expect("no thread panics while holding the lock");
        match process.exit_status().context("cannot get the status of 5spot")? {
            None => Ok(()),
            Some(status) => Err(anyhow!("5spot exited unexpectedly ({status}); see its log {}", self.log.display())),
        }
    }

    pub(super) fn metrics_port(&self) -> u16 {
        self.metrics_port.number()
    }

    /// Sends SIGTERM and waits until the controller has exited.
    pub(super) async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            let process = self.process.into_inner().expect("no thread panics while holding the lock");
            process.stop(GRACE);
        });
        // Fails only if the runtime is shutting down, which kills the process.
        let _ = stopped.await;
    }
}
