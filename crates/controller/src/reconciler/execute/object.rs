//! Writes to the ScheduledMachine. Each carries the `resourceVersion` that was decided from, so a later edit wins.

use fivespot_api::{ScheduledMachine, keys};
use kube::api::Patch;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tracing::{debug, info};

use super::patch_params;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::scope::Scope;
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

    /// Applies a merge patch to the status.
    pub(in crate::reconciler) async fn patch_status(&mut self, patch: Value) -> Result<(), ReconcileError> {
        let operation = Operation::new("patch", format!("status of ScheduledMachine {}", self.key));
        let (api, patch) = (self.api(), self.with_resource_version(json!({ "status": patch })));
        let result =
            self.write(operation, api.patch_status(&self.key.name, &patch_params(), &Patch::Merge(&patch))).await;
        self.apply_response(result)?;
        debug!("Patched status");
        Ok(())
    }

    fn with_resource_version(&self, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        patch
    }

    /// Applies the response to a write. Without one the outcome is unknown, and the next reconcile reads the object first: a
    /// decision from the state before the write could act on an intent that has been dropped.
    fn apply_response(&mut self, result: Result<ScheduledMachine, ReconcileError>) -> Result<(), ReconcileError> {
        let applied = match result {
            Ok(object) => {
                self.apply_written(object);
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.context.count_phase(&self.context.objects.mark_deleted(&self.object));
                Err(ReconcileError::Deleted { object: format!("ScheduledMachine {}", self.key) })
            }
            Err(error) => Err(error),
        };
        if applied.is_err() {
            self.context.mark_uncertain(self.key);
        }
        applied
    }

    fn apply_written(&mut self, mut object: ScheduledMachine) {
        object.metadata.managed_fields = None;
        let objects = &self.context.objects;
        let event = if is_deleted(&object) {
            objects.mark_deleted(&object)
        } else {
            objects.apply_write_response(object.clone())
        };
        self.context.count_phase(&event);
        self.object = object;
    }

    fn api(&self) -> Api<ScheduledMachine> {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }
}

/// Whether a write removed the last finalizer of an object that is being deleted.
fn is_deleted(object: &ScheduledMachine) -> bool {
    object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty()
}
