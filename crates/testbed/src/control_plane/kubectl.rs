//! Runs kubectl against the control plane.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ADMIN, ControlPlane, StartError};
use crate::manifest;

impl ControlPlane {
    pub fn kubectl_path(&self) -> PathBuf {
        self.artifacts().kubernetes("kubectl")
    }

    /// A kubectl command with the admin kubeconfig.
    pub fn kubectl(&self) -> Result<Command, StartError> {
        let mut command = Command::new(self.kubectl_path());
        command.env("KUBECONFIG", self.kubeconfig_for(ADMIN)?);
        Ok(command)
    }

    /// Applies a manifest with kubectl: a file or a directory (`-f`), or a kustomization (`-k`). Waits until its CRDs are
    /// established. A warning of the API server is an error.
    pub async fn apply(&self, path: &Path) -> Result<(), StartError> {
        let how = if path.join("kustomization.yaml").exists() { "-k" } else { "-f" };
        let mut kubectl = self.kubectl()?;
        kubectl.args(["apply", "--server-side", "--warnings-as-errors", how]).arg(path);
        let output = tokio::task::spawn_blocking(move || kubectl.output())
            .await
            .expect("running a command does not panic")
            .map_err(StartError::io(&self.kubectl_path()))?;
        if output.status.success() {
            return manifest::await_crds(&self.client()).await;
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(StartError::Apply { path: path.to_owned(), stderr })
    }
}
