//! Sending writes: permits, shutdown, preconditions, and what becomes of the response.

use fivespot_api::{ScheduledMachine, keys};
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Scope;
use super::error::ReconcileError;
use crate::clusters::WorkloadClient;
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, send};

impl Scope<'_> {
    /// Sends a write to the management cluster when a permit is free, unless the controller is shutting down.
    pub(super) async fn write<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        let _permit = self.context.writes.acquire().await.map_err(|_| ReconcileError::ShuttingDown)?;
        if self.context.shutdown.is_cancelled() {
            return Err(ReconcileError::ShuttingDown);
        }
        Ok(send(MANAGEMENT_TIMEOUT, operation, request).await?)
    }

    /// Sends a write to a workload cluster, unless the controller is shutting down.
    pub(super) async fn write_to_workload<T>(
        &self,
        client: &WorkloadClient,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        if self.context.shutdown.is_cancelled() {
            return Err(ReconcileError::ShuttingDown);
        }
        Ok(client.send(operation, request).await?)
    }

    /// Sends a write about a pod of a workload cluster, unless the controller is shutting down. If there is no response, the
    /// connection is kept.
    pub(super) async fn write_for_pod<T>(
        &self,
        client: &WorkloadClient,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        if self.context.shutdown.is_cancelled() {
            return Err(ReconcileError::ShuttingDown);
        }
        Ok(client.send_for_pod(operation, request).await?)
    }

    pub(super) fn with_resource_version(&self, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        patch
    }

    /// Applies the response to a write. Without one the outcome is unknown, and the next reconcile reads the object first: a
    /// decision from the state before the write could act on an intent that has been dropped.
    pub(super) fn apply_response(
        &mut self,
        result: Result<ScheduledMachine, ReconcileError>,
    ) -> Result<(), ReconcileError> {
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

    pub(super) fn api(&self) -> Api<ScheduledMachine> {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }
}

/// Deletes the object with this uid, not one that replaced it.
pub(super) fn delete_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

pub(super) fn post_params() -> PostParams {
    PostParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Whether a write removed the last finalizer of an object that is being deleted.
fn is_deleted(object: &ScheduledMachine) -> bool {
    object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty()
}
