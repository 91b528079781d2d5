//! Sending writes: permits, shutdown, preconditions, and what becomes of the response.

use fivespot_api::keys;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Resource as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Scope;
use super::error::ReconcileError;
use crate::clusters::WorkloadClient;
use crate::object::{ReceivedObject, StoredObject};
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, send};
use crate::runtime::shards::WriteFence;

impl Scope<'_> {
    /// Sends a write to the management cluster when a permit is free, unless the controller is shutting down or has lost
    /// the shard of the object.
    pub(super) async fn write<T>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        // Determined for each write: an owner may request the machine while it is being reconciled.
        let urgency = self.context.urgency(self.key);
        let _permit = self.context.writes.acquire(self.key, urgency, self.object.spec.priority, self.now).await;
        let fence = self.fence()?;
        Ok(fence.guard(send(MANAGEMENT_TIMEOUT, operation, request)).await??)
    }

    /// Sends a write to a workload cluster, unless the controller is shutting down. It needs no permit, so that a cluster
    /// that does not respond delays no write to the management cluster.
    pub(super) async fn write_to_workload<T>(
        &self,
        client: &WorkloadClient,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        let fence = self.fence()?;
        Ok(fence.guard(client.send(operation, request)).await??)
    }

    /// Sends a write about a pod of a workload cluster, unless the controller is shutting down. If there is no response, the
    /// connection is kept.
    pub(super) async fn write_for_pod<T>(
        &self,
        client: &WorkloadClient,
        operation: Operation,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        let fence = self.fence()?;
        Ok(fence.guard(client.send_for_pod(operation, request)).await??)
    }

    /// Permission for one write.
    fn fence(&self) -> Result<WriteFence<'_>, ReconcileError> {
        if self.context.shutdown.is_cancelled() {
            return Err(ReconcileError::ShuttingDown);
        }
        Ok(self.context.shards.fence(self.key)?)
    }

    /// Creates an object from its manifest. Of the response only `K` is decoded.
    pub(super) async fn create<K: DeserializeOwned>(
        &self,
        operation: Operation,
        resource: &ApiResource,
        manifest: String,
    ) -> Result<K, ReconcileError> {
        let request = self.requests(resource).create(&post_params(), manifest.into_bytes());
        let request = request.map_err(kube::Error::BuildRequest);
        self.write(operation, async { self.context.client.request(request?).await }).await
    }

    /// Deletes an object that meets the preconditions. Returns the object if finalizers keep it. Of the response only `K` is
    /// decoded.
    pub(super) async fn delete<K: DeserializeOwned>(
        &self,
        operation: Operation,
        resource: &ApiResource,
        (name, preconditions): (&str, Preconditions),
    ) -> Result<Option<K>, ReconcileError> {
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = self.requests(resource).delete(name, &params).map_err(kube::Error::BuildRequest);
        let response: Deletion<K> =
            self.write(operation, async { self.context.client.request(request?).await }).await?;
        Ok(response.0)
    }

    fn requests(&self, resource: &ApiResource) -> Request {
        Request::new(DynamicObject::url_path(resource, Some(&self.key.namespace)))
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
                self.context.count_object(&self.context.objects.mark_deleted(&self.object));
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
        self.context.count_object(&event);
        self.object = stored;
        self.inline_specs = inline_specs.filter(|_| self.creates_children);
    }

    pub(super) fn api(&self) -> Api<ReceivedObject> {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }
}

/// The response to a deletion: the object, or a status if it no longer exists. Decoded by itself, because tenants can nest the
/// fields that the controller does not read as deep as the API server accepts.
struct Deletion<K>(Option<K>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Deletion<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Kind {
            kind: String,
        }
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let Kind { kind } = serde_json::from_str(json.get()).map_err(de::Error::custom)?;
        if kind == "Status" {
            return Ok(Deletion(None));
        }
        serde_json::from_str(json.get()).map(|object| Deletion(Some(object))).map_err(de::Error::custom)
    }
}

/// Deletes the object with this uid, not one that replaced it.
pub(super) fn delete_uid(uid: &str) -> DeleteParams {
    DeleteParams { preconditions: Some(with_uid(uid)), ..DeleteParams::default() }
}

/// The object with this uid, in any version.
pub(super) fn with_uid(uid: &str) -> Preconditions {
    Preconditions { uid: Some(uid.to_owned()), resource_version: None }
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

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::capi::Machine;

    #[test]
    fn response_to_deletion_is_object_or_status() {
        let deep = format!("{}{}", r#"{"f:a":"#.repeat(500) + "{}", "}".repeat(500));
        let metadata = format!(r#"{{"name":"desk","uid":"u1","managedFields":[{{"fieldsV1":{deep}}}]}}"#);
        let object = format!(r#"{{"kind":"Machine","apiVersion":"cluster.x-k8s.io/v1beta2","metadata":{metadata}}}"#);
        let machine: Deletion<Machine> = serde_json::from_str(&object).unwrap();
        assert_eq!(machine.0.unwrap().uid().as_deref(), Some("u1"));
        assert!(serde_json::from_str::<Deletion<IgnoredAny>>(&object).unwrap().0.is_some());
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Success","details":{"uid":"u1"}}"#;
        assert!(serde_json::from_str::<Deletion<Machine>>(status).unwrap().0.is_none());
    }
}
