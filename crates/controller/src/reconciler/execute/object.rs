//! Writes to the ScheduledMachine other than its status. Each carries the `resourceVersion` that the decision was based on, so a later edit wins.

use fivespot_api::keys;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::write::patch_params;
use crate::runtime::request::Operation;

impl Scope<'_> {
    pub(super) async fn add_finalizer(&mut self) -> Result<(), ReconcileError> {
        let mut finalizers = self.object.finalizers().to_vec();
        finalizers.push(keys::FINALIZER.to_owned());
        self.patch_object(json!({ "metadata": { "finalizers": finalizers } })).await?;
        debug!("Added finalizer");
        Ok(())
    }

    pub(super) async fn remove_finalizer(&mut self) -> Result<(), ReconcileError> {
        let finalizers: Vec<&String> = self.object.finalizers().iter().filter(|it| *it != keys::FINALIZER).collect();
        self.patch_object(json!({ "metadata": { "finalizers": finalizers } })).await?;
        self.finalizer_removed = true;
        info!("Removed finalizer; no child is left");
        Ok(())
    }

    pub(super) async fn disable_schedule(&mut self) -> Result<(), ReconcileError> {
        self.patch_object(json!({ "spec": { "schedule": { "enabled": false } } })).await?;
        self.outcome.schedule_disabled = true;
        info!("Disabled schedule");
        Ok(())
    }

    async fn patch_object(&mut self, patch: Value) -> Result<(), ReconcileError> {
        let operation = Operation::new("patch", format!("ScheduledMachine {}", self.key));
        let (api, patch) = (self.api(), self.with_resource_version(patch));
        let result = self.write(operation, api.patch(&self.key.name, &patch_params(), &Patch::Merge(&patch))).await;
        self.apply_response(result)
    }
}
