//! The controller, as it is shipped: a process of its own, under its own ServiceAccount.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use fivespot_testbed::ControlPlane;
use fivespot_testbed::process::{GRACE, Process};
use fivespot_testbed::wait::try_eventually;

const NAME: &str = "5spot";
const LISTENS_WITHIN: Duration = Duration::from_mins(1);
/// How its log begins to say where the metrics are.
const METRICS_LINE: &str = "what=\"metrics\" port=";

/// A running controller.
pub(super) struct Controller {
    process: Mutex<Process>,
    log: PathBuf,
}

impl Controller {
    pub(super) async fn start(plane: &ControlPlane, program: &Path) -> Result<Self> {
        let account = plane.service_account("5spot-system", "5spot-controller").await;
        let access = account.context("a token of the controller's ServiceAccount")?;
        let kubeconfig = plane.write_kubeconfig(NAME, &access)?;
        let mut command = Command::new(program);
        command.env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1").args([
            "--health-port=0",
            "--metrics-port=0",
            "--log-format=text",
        ]);
        let process = Process::spawn(NAME, &mut command, &plane.logs())?;
        Ok(Controller { log: process.log().to_owned(), process: Mutex::new(process) })
    }

    /// Fails if it has ended by itself.
    pub(super) fn check_alive(&self) -> Result<()> {
        let ended = self.lock()?.exit_status().context("asking for 5spot")?;
        match ended {
            None => Ok(()),
            Some(status) => Err(anyhow!("5spot ended by itself ({status}): its log {} says why", self.log.display())),
        }
    }

    /// The port at which it tells its metrics.
    pub(super) async fn metrics_port(&self) -> Result<u16> {
        let port = try_eventually("5spot says where its metrics are", LISTENS_WITHIN, async || {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let after = log.split(METRICS_LINE).nth(1)?;
            after.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
        });
        Ok(port.await?)
    }

    /// Asks it to end, and waits until it has.
    pub(super) async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            if let Ok(process) = self.process.into_inner() {
                process.stop(GRACE);
            }
        });
        // It fails only if the runtime is shutting down, and then the process is killed with it.
        let _ = stopped.await;
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, Process>> {
        self.process.lock().map_err(|_| anyhow!("a thread that looked after 5spot panicked"))
    }
}
