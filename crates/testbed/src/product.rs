//! What is shipped and has to be in a cluster before a controller is started that does not run in a pod of it.

use std::path::{Path, PathBuf};

use crate::control_plane::{ControlPlane, StartError};

/// The CRD, the admission policy, and the permissions of the controller.
const BEFORE_THE_CONTROLLER: [&str; 7] = [
    "deploy/crds/scheduledmachine.yaml",
    "deploy/admission",
    "deploy/controller/namespace.yaml",
    "deploy/controller/serviceaccount.yaml",
    "deploy/controller/rbac.yaml",
    "deploy/controller/workload-access.yaml",
    "deploy/controller/management-nodes.yaml",
];

/// A file of the repository.
pub(crate) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

impl ControlPlane {
    /// Installs what is shipped, all but the controller itself.
    pub async fn install_all_but_the_controller(&self) -> Result<(), StartError> {
        for path in BEFORE_THE_CONTROLLER {
            self.apply(&shipped(path)).await?;
        }
        Ok(())
    }
}
