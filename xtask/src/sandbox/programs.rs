//! The programs of this repository that a sandbox runs, built from the sources as they are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use fivespot_testbed::ControlPlane;
use serde_json::Value;
use tokio::process::Command;

use crate::shell::{cargo, tell};

const CONTROLLER: &str = "5spot";
const PLUGIN: &str = "kubectl-5spot";

/// Where they are.
pub(super) struct Programs {
    pub(super) controller: PathBuf,
    plugin: PathBuf,
}

impl Programs {
    /// Builds them; what cargo has to say about it goes where our own progress goes.
    pub(super) async fn build() -> Result<Self> {
        let build = cargo(&[
            "build",
            "--quiet",
            "--locked",
            "--package=fivespot-controller",
            "--package=fivespot-cli",
            "--bins",
            "--message-format=json-render-diagnostics",
        ]);
        let told = tell(&build);
        let built = Command::from(build)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("starting {told}"))?;
        if !built.status.success() {
            bail!("the product does not build ({told}: {}): see the compiler's message above", built.status);
        }
        let messages = String::from_utf8_lossy(&built.stdout);
        Ok(Programs { controller: executable(&messages, CONTROLLER)?, plugin: executable(&messages, PLUGIN)? })
    }

    /// A directory of the run that has kubectl and its plugin, and nothing that is in anybody's way on a PATH.
    pub(super) fn on_path(&self, plane: &ControlPlane) -> Result<PathBuf> {
        let directory = plane.run_dir().subdirectory("bin").context("a directory for programs")?;
        for (name, program) in [("kubectl", &plane.kubectl_path()), (PLUGIN, &self.plugin)] {
            let link = directory.join(name);
            symlink(fs::canonicalize(program).unwrap_or_else(|_| program.clone()), &link)
                .with_context(|| format!("linking {}", link.display()))?;
        }
        Ok(directory)
    }
}

/// Where cargo put a binary: only cargo knows, since the environment and its configuration may say otherwise.
fn executable(messages: &str, name: &str) -> Result<PathBuf> {
    let mut artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = artifacts.find_map(|it| {
        let path = it["executable"].as_str().map(Path::new)?;
        (it["target"]["name"] == name).then(|| path.to_owned())
    });
    found.with_context(|| format!("cargo did not say where it put {name}"))
}
