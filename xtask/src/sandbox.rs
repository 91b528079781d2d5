//! `cargo xtask sandbox`: the whole product on this machine, with a real API server and the real Cluster API, until Ctrl-C.
//!
//! Every process that it starts is killed when this process dies.

mod controller;
mod instructions;
mod machines;
mod programs;
mod shutdown;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::wait::try_eventually;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use kube::Api;

use crate::shell::{root, step};
use controller::Controller;
use instructions::Instructions;
use programs::Programs;
use shutdown::ShutdownSignals;

/// The default namespace, so that kubectl needs no flag.
const NAMESPACE: &str = "default";
/// The Cluster that the example refers to.
const CLUSTER: &str = "production-cluster";
const EXAMPLE: &str = "examples/business-hours.yaml";
/// The first machine takes seconds on an idle host.
const MACHINE_TIMEOUT: Duration = Duration::from_mins(5);
/// How often the sandbox checks that its programs are running.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a sandbox until SIGINT or SIGTERM.
pub(crate) fn run() -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the tokio runtime")?;
    let result = runtime.block_on(async {
        let mut signals = ShutdownSignals::listen()?;
        let sandbox = tokio::select! {
            started = Sandbox::start() => started?,
            () = signals.received() => return Ok(()),
        };
        let result = tokio::select! {
            error = sandbox.await_failure() => Err(error),
            () = signals.received() => Ok(()),
        };
        step("Stopping (press Ctrl-C again to stop immediately)");
        let logs = sandbox.testbed.control_plane().logs();
        tokio::select! {
            () = sandbox.stop() => step(&format!("Stopped; the logs are in {}", logs.display())),
            () = signals.received() => {}
        }
        result
    });
    // Does not wait for an interrupted build: it is killed with this process.
    runtime.shutdown_background();
    result
}

/// All running processes.
struct Sandbox {
    // Dropped first, so that it does not run without its API server.
    controller: Controller,
    testbed: Testbed,
}

impl Sandbox {
    async fn start() -> Result<Self> {
        let started = Instant::now();
        step("Building 5spot and kubectl-5spot");
        let programs = Programs::build().await?;
        step("Starting etcd, Kubernetes, Cluster API and KWOK (the first run builds them, which takes minutes)");
        let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("sandbox")).await?;
        let plane = testbed.control_plane();
        step("Installing the CRD, the admission policy and the controller's RBAC");
        plane.install_without_controller().await?;
        step(&format!("Creating Cluster {CLUSTER}"));
        testbed.cluster(&plane.existing_namespace(NAMESPACE), CLUSTER).await?;
        step("Starting 5spot with its own ServiceAccount");
        let controller = Controller::start(plane, &programs.controller).await?;
        step(&format!("Applying {EXAMPLE} and ScheduledMachine {}, whose window is open now", machines::OPEN_NOW));
        let open_now = machines::write(plane.run_dir())?;
        for path in [&root().join(EXAMPLE), &open_now] {
            plane.apply(path).await?;
        }
        let sandbox = Sandbox { controller, testbed };
        step(&format!("Waiting until {} is Active", machines::OPEN_NOW));
        sandbox.await_machine().await?;
        let plane = sandbox.testbed.control_plane();
        let instructions = Instructions {
            startup: started.elapsed(),
            kubeconfig: plane.kubeconfig_for(fivespot_testbed::control_plane::ADMIN)?,
            programs: programs.link_into(plane)?,
            manifest: open_now,
            logs: plane.logs(),
            metrics_port: sandbox.controller.metrics_port(),
        };
        instructions.print();
        Ok(sandbox)
    }

    async fn await_machine(&self) -> Result<()> {
        let machines: Api<ScheduledMachine> = Api::namespaced(self.testbed.client(), NAMESPACE);
        let what = format!("{} is Active", machines::OPEN_NOW);
        let waited = try_eventually(&what, MACHINE_TIMEOUT, async || {
            self.controller.check_alive()?;
            let status = machines.get(machines::OPEN_NOW).await?.status.unwrap_or_default();
            let ready = status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            if ready && status.phase == Some(Phase::Active) {
                Ok(())
            } else {
                Err(anyhow!("{}", status.message.unwrap_or_default()))
            }
        });
        Ok(waited.await?)
    }

    /// Returns when a program has exited unexpectedly.
    async fn await_failure(&self) -> anyhow::Error {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let alive = self.testbed.control_plane().check_alive().map_err(anyhow::Error::from);
            if let Err(error) = alive.and_then(|()| self.controller.check_alive()) {
                return error;
            }
        }
    }

    /// Stops the controller before its API server, so that it can shut down gracefully.
    async fn stop(self) {
        self.controller.stop().await;
        self.testbed.stop().await;
    }
}

/// A path that can be pasted into a shell.
fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let needs_no_quotes = |it: char| it.is_ascii_alphanumeric() || "/._-+,@:".contains(it);
    if text.chars().all(needs_no_quotes) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_space_is_quoted() {
        assert_eq!(shell_quote(Path::new("/a/b.yaml")), "/a/b.yaml");
        assert_eq!(shell_quote(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
