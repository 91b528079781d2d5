//! `RemoteCluster` and `K0smotronControlPlane`: ready once a Cluster owns them.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::json;

use super::context::{Context, ProviderError, owner_name};
use super::kinds::K0SMOTRON_CONTROL_PLANE;

pub(super) async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, ProviderError> {
    let is_ready = object.data.pointer("/status/ready") == Some(&json!(true));
    if is_ready || object.metadata.deletion_timestamp.is_some() || owner_name(&object, "Cluster").is_none() {
        return Ok(Action::await_change());
    }
    let is_control_plane = object.types.as_ref().is_some_and(|types| types.kind == K0SMOTRON_CONTROL_PLANE.kind);
    let status = if is_control_plane {
        // Cluster API neither drains nor deletes Nodes unless the control plane is initialized.
        json!({ "ready": true, "initialized": true, "externalManagedControlPlane": true,
            "initialization": { "controlPlaneInitialized": true } })
    } else {
        json!({ "ready": true, "initialization": { "provisioned": true } })
    };
    context.patch_status(&object, status).await?;
    Ok(Action::await_change())
}
