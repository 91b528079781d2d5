//! `cargo xtask sandbox`: the whole product on this machine, on a real API server and the real Cluster API, until Ctrl-C.
//!
//! Whatever is started dies with this process, however that ends.

mod controller;
mod ending;
mod guide;
mod machines;
mod programs;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fivespot_api::{Phase, ScheduledMachine};
use fivespot_cli_support::write_stderr as tell;
use fivespot_testbed::wait::try_eventually;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use kube::Api;

use crate::shell::root;
use controller::Controller;
use ending::Ending;
use guide::Guide;
use programs::Programs;

/// Where everything is, so that kubectl needs no flag.
const NAMESPACE: &str = "default";
/// The Cluster that the example names.
const CLUSTER: &str = "production-cluster";
/// The machine with a schedule as people have it.
const EXAMPLE: &str = "examples/business-hours.yaml";
/// How long the first machine may take; it takes seconds where nothing else is going on.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often a sandbox that is up looks whether its programs still run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a sandbox until somebody ends it.
pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    let ran = runtime.block_on(async {
        let mut ending = Ending::listen()?;
        let sandbox = tokio::select! {
            started = Sandbox::start() => started?,
            () = ending.asked() => return Ok(()),
        };
        let lived = tokio::select! {
            broken = sandbox.watch_over() => Err(broken),
            () = ending.asked() => Ok(()),
        };
        tell("==> ending everything (Ctrl-C again: at once)");
        tokio::select! {
            () = sandbox.stop() => tell("==> ended; the logs stay where they are"),
            () = ending.asked() => {}
        }
        lived
    });
    // A build that was interrupted is not waited for: it ends with this process.
    runtime.shutdown_background();
    ran
}

/// Everything that runs.
struct Sandbox {
    // Dropped first: it shall not see its API server go.
    controller: Controller,
    testbed: Testbed,
}

impl Sandbox {
    async fn start() -> Result<Self> {
        let begun = Instant::now();
        tell("==> building 5spot and kubectl-5spot");
        let programs = Programs::build().await?;
        tell("==> starting etcd, Kubernetes, Cluster API and KWOK (built from source the first time: some minutes)");
        let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("sandbox")).await?;
        let plane = testbed.control_plane();
        tell("==> installing the CRD, the admission policy and the permissions of the controller");
        plane.install_all_but_the_controller().await?;
        tell(&format!("==> making Cluster {CLUSTER}"));
        testbed.cluster(&plane.existing_namespace(NAMESPACE), CLUSTER).await?;
        tell("==> starting 5spot under its own ServiceAccount");
        let controller = Controller::start(plane, &programs.controller).await?;
        tell(&format!("==> applying {EXAMPLE}, and {} with a window that is open now", machines::OPEN_NOW));
        let open_now = machines::write(plane.run_dir())?;
        for path in [&root().join(EXAMPLE), &open_now] {
            plane.apply(path).await?;
        }
        let sandbox = Sandbox { controller, testbed };
        tell(&format!("==> waiting until {} runs", machines::OPEN_NOW));
        sandbox.await_machine().await?;
        let guide = Guide {
            took: begun.elapsed(),
            kubeconfig: sandbox.testbed.control_plane().kubeconfig_for(fivespot_testbed::control_plane::ADMIN)?,
            programs: programs.on_path(sandbox.testbed.control_plane())?,
            manifest: open_now,
            logs: sandbox.testbed.control_plane().logs(),
            metrics_port: sandbox.controller.metrics_port().await?,
        };
        guide.print();
        Ok(sandbox)
    }

    async fn await_machine(&self) -> Result<()> {
        let machines: Api<ScheduledMachine> = Api::namespaced(self.testbed.client(), NAMESPACE);
        let what = format!("{} runs", machines::OPEN_NOW);
        let waited = try_eventually(&what, PATIENCE, async || {
            self.controller.check_alive().map_err(|error| error.to_string())?;
            let seen = machines.get(machines::OPEN_NOW).await.map_err(|error| error.to_string())?;
            let status = seen.status.unwrap_or_default();
            let ready = status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            if ready && status.phase == Some(Phase::Active) { Ok(()) } else { Err(status.message.unwrap_or_default()) }
        });
        Ok(waited.await?)
    }

    /// Goes on for as long as everything runs; then tells what does not.
    async fn watch_over(&self) -> anyhow::Error {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let alive = self.testbed.control_plane().check_alive().map_err(anyhow::Error::from);
            if let Err(error) = alive.and_then(|()| self.controller.check_alive()) {
                return error;
            }
        }
    }

    /// Ends everything in order: the controller says farewell while there is somebody to hear it.
    async fn stop(self) {
        self.controller.stop().await;
        self.testbed.stop().await;
    }
}

/// A path as one would paste it into a shell.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |it: char| it.is_ascii_alphanumeric() || "/._-+,@:".contains(it);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_space_can_be_pasted() {
        assert_eq!(shown(Path::new("/a/b.yaml")), "/a/b.yaml");
        assert_eq!(shown(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
