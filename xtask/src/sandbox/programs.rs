//! Builds the controller and the kubectl plugin from the working tree.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use fivespot_testbed::ControlPlane;
use serde_json::Value;
use tokio::process::Command;

use crate::shell::{cargo, display};

const CONTROLLER: &str = "5spot";
const PLUGIN: &str = "kubectl-5spot";

/// Paths of the binaries.
pub(super) struct Programs {
    pub(super) controller: PathBuf,
    plugin: PathBuf,
}

impl Programs {
    /// Builds the programs. Cargo prints its progress to standard error.
    pub(super) async fn build() -> Result<Self> {
        let build = cargo(&[
            "build",
            "--locked",
            "--package=fivespot-controller",
            "--package=fivespot-cli",
            "--bins",
            "--message-format=json-render-diagnostics",
        ]);
        let line = display(&build);
        let output = Command::from(build)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot start {line}"))?;
        if !output.status.success() {
            bail!("cannot build the product: {line}: {}; see the compiler errors above", output.status);
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        Ok(Programs { controller: executable(&messages, CONTROLLER)?, plugin: executable(&messages, PLUGIN)? })
    }

    /// Links kubectl and its plugin into a directory for the PATH that contains nothing else.
    pub(super) fn link_into(&self, plane: &ControlPlane) -> Result<PathBuf> {
        let directory = plane.run_dir().subdirectory("bin").context("cannot create the directory for programs")?;
        for (name, program) in [("kubectl", &plane.kubectl_path()), (PLUGIN, &self.plugin)] {
            let link = directory.join(name);
            symlink(fs::canonicalize(program).unwrap_or_else(|_| program.clone()), &link)
                .with_context(|| format!("cannot create the link {}", link.display()))?;
        }
        Ok(directory)
    }
}

/// The path of a binary from cargo's JSON messages. The target directory depends on the environment and configuration.
fn executable(messages: &str, name: &str) -> Result<PathBuf> {
    let mut artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let path = artifacts.find_map(|artifact| {
        let path = artifact["executable"].as_str().map(Path::new)?;
        (artifact["target"]["name"] == name).then(|| path.to_owned())
    });
    path.with_context(|| format!("cargo did not report the path of {name}"))
}
