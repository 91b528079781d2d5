//! Writes to the ScheduledMachine other than its status. Each carries the `resourceVersion` that the decision was based on, so a later edit wins.

use fivespot_api::keys;
use fivespot_planner::intent::Intent;
use fivespot_planner::observed::Refs;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::object::ReceivedObject;
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::write::patch_params;
use crate::runtime::request::Operation;

impl Scope<'_> {
    pub(super) async fn add_finalizer(&mut self) -> Result<(), ReconcileError> {
        let mut finalizers = self.all_finalizers().await?;
        finalizers.push(keys::FINALIZER.to_owned());
        self.patch_object(json!({ "metadata": { "finalizers": finalizers } })).await?;
        debug!("Added finalizer");
        Ok(())
    }

    pub(super) async fn record_intent(&mut self, refs: &Refs) -> Result<(), ReconcileError> {
        let annotation = Intent::next(&self.object.status(), refs.clone()).annotation();
        let mut metadata = json!({ "annotations": { keys::CHILDREN_ANNOTATION: annotation } });
        if !self.observed.has_finalizer {
            let mut finalizers = self.all_finalizers().await?;
            finalizers.push(keys::FINALIZER.to_owned());
            metadata["finalizers"] = json!(finalizers);
        }
        self.patch_object(json!({ "metadata": metadata })).await?;
        debug!("Recorded the children to create");
        Ok(())
    }

    pub(super) async fn remove_finalizer(&mut self) -> Result<(), ReconcileError> {
        let mut finalizers = self.all_finalizers().await?;
        finalizers.retain(|it| it != keys::FINALIZER);
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

    /// The list is written as a whole, so it must not miss one. The `resourceVersion` of the write is that of the list.
    async fn all_finalizers(&mut self) -> Result<Vec<String>, ReconcileError> {
        if self.object.has_all_finalizers {
            return Ok(self.object.finalizers().to_vec());
        }
        Ok(self.read_object().await?.finalizers)
    }

    /// Reads the object with everything that is not kept in the cache. It must be the one that the decision is based on.
    pub(super) async fn read_object(&mut self) -> Result<ReceivedObject, ReconcileError> {
        let operation = Operation::new("read", format!("ScheduledMachine {}", self.key));
        let received = self.write(operation, self.api().get(&self.key.name)).await?;
        if received.stored.metadata.resource_version != self.object.metadata.resource_version {
            self.context.mark_uncertain(self.key);
            return Err(ReconcileError::ObjectChanged { object: format!("ScheduledMachine {}", self.key) });
        }
        Ok(received)
    }

    async fn patch_object(&mut self, patch: Value) -> Result<(), ReconcileError> {
        let operation = Operation::new("patch", format!("ScheduledMachine {}", self.key));
        let (api, patch) = (self.api(), self.with_resource_version(patch));
        let (params, patch) = (patch_params(), Patch::Merge(&patch));
        let result = self.write(operation, api.patch(&self.key.name, &params, &patch)).await;
        self.apply_response(result)
    }
}
