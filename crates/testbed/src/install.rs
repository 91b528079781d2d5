//! Installs the shipped manifests, for a controller that runs as a process outside the cluster.

use std::path::{Path, PathBuf};

use crate::control_plane::{ControlPlane, StartError};

/// The CRD, the admission policy and the RBAC of the controller.
const CONTROLLER_PREREQUISITES: [&str; 7] = [
    "deploy/crds/scheduledmachine.yaml",
    "deploy/admission",
    "deploy/controller/namespace.yaml",
    "deploy/controller/serviceaccount.yaml",
    "deploy/controller/rbac.yaml",
    "deploy/controller/workload-access.yaml",
    "deploy/controller/management-nodes.yaml",
];

/// The path of a file in the repository.
pub(crate) fn repo_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

impl ControlPlane {
    /// Installs everything that is shipped except the controller's StatefulSet.
    pub async fn install_without_controller(&self) -> Result<(), StartError> {
        for path in CONTROLLER_PREREQUISITES {
            self.apply(&repo_path(path)).await?;
        }
        Ok(())
    }
}
