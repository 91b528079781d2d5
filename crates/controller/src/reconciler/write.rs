//! Sending writes: permits, shutdown, preconditions, and what becomes of the response.

use fivespot_api::keys;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Scope;
use super::error::ReconcileError;
use crate::clusters::WorkloadClient;
use crate::object::{ReceivedObject, StoredObject};
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, send};

/// A valid object is smaller: each of its two inline specs has at most 64 KiB.
const LARGE_OBJECT: usize = 256 * 1024;

impl Scope<'_> {
    /// Sends a write to the management cluster when a permit is free, unless the controller is shutting down.
    pub(super) async fn write<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        // Determined for each write: an owner may request the machine while it is being reconciled.
        let urgency = self.context.urgency(self.key);
        let _permit = self.context.writes.acquire(self.key, urgency, self.object.spec.priority).await;
        if self.context.shutdown.is_cancelled() {
            return Err(ReconcileError::ShuttingDown);
        }
        Ok(send(MANAGEMENT_TIMEOUT, operation, request).await?)
    }

    /// Sends a write to a workload cluster, unless the controller is shutting down. It needs no permit, so that a cluster
    /// that does not respond delays no write to the management cluster.
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

    /// Sends a request whose response is the ScheduledMachine. Few responses of large objects are held at the same time;
    /// other objects do not wait for them.
    pub(super) async fn request_object(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<ReceivedObject, kube::Error>>,
    ) -> Result<ReceivedObject, ReconcileError> {
        let large_objects = &self.context.large_objects;
        let is_large = self.object.size > LARGE_OBJECT;
        let _permit = if is_large { large_objects.acquire().await.ok() } else { None };
        self.write(operation, request).await
    }

    pub(super) fn with_resource_version(&self, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        patch
    }

    /// Applies the response to a write. Without one the outcome is unknown, and the next reconcile reads the object first: a
    /// decision from the state before the write could act on an intent that has been dropped.
    pub(super) fn apply_response(
        &mut self,
        result: Result<ReceivedObject, ReconcileError>,
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

    fn apply_written(&mut self, received: ReceivedObject) {
        let ReceivedObject { stored, inline_specs, .. } = received;
        let objects = &self.context.objects;
        let event = if is_deleted(&stored) {
            objects.mark_deleted(&stored)
        } else {
            objects.apply_write_response(stored.clone())
        };
        self.context.count_phase(&event);
        self.object = stored;
        self.inline_specs = inline_specs;
    }

    pub(super) fn api(&self) -> Api<ReceivedObject> {
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
fn is_deleted(object: &StoredObject) -> bool {
    object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty()
}
