//! kubectl, for what people do with it: apply manifests, look around.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ADMIN, ControlPlane, StartError};
use crate::manifest;

impl ControlPlane {
    /// Where kubectl is.
    pub fn kubectl_path(&self) -> PathBuf {
        self.artifacts().kubernetes("kubectl")
    }

    /// kubectl as admin, to be given arguments.
    pub fn kubectl(&self) -> Result<Command, StartError> {
        let mut command = Command::new(self.kubectl_path());
        command.env("KUBECONFIG", self.kubeconfig_for(ADMIN)?);
        Ok(command)
    }

    /// Applies a manifest as a user would: a file or a directory of files (`-f`), or a kustomization (`-k`). Kinds that
    /// it defines are served when this returns, and a warning of the API server's is an error.
    pub async fn apply(&self, path: &Path) -> Result<(), StartError> {
        let how = if path.join("kustomization.yaml").exists() { "-k" } else { "-f" };
        let mut kubectl = self.kubectl()?;
        kubectl.args(["apply", "--server-side", "--warnings-as-errors", how]).arg(path);
        let output = tokio::task::spawn_blocking(move || kubectl.output())
            .await
            .expect("running a command does not panic")
            .map_err(StartError::io(&self.kubectl_path()))?;
        if output.status.success() {
            return manifest::await_kinds(&self.client()).await;
        }
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(StartError::Manifest { path: path.to_owned(), problem })
    }
}
