//! Annotating and deleting the Machine.

use fivespot_planner::children::ChildNames;
use fivespot_planner::observed::Exclusions;
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::capi::{EXCLUDE_NODE_DRAINING, EXCLUDE_VOLUME_DETACH, Machine};
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::write::patch_params;
use crate::runtime::request::{Operation, RequestError};

impl Scope<'_> {
    pub(super) async fn set_exclusions(&self, exclusions: Exclusions) -> Result<(), ReconcileError> {
        let mut annotations = json!({});
        for (is_excluded, annotation) in
            [(exclusions.node_drain, EXCLUDE_NODE_DRAINING), (exclusions.volume_detach, EXCLUDE_VOLUME_DETACH)]
        {
            if is_excluded {
                // Cluster API checks only that the annotation exists.
                annotations[annotation] = json!("true");
            }
        }
        self.annotate_machine(&annotations).await
    }

    pub(super) async fn clear_exclusions(&self) -> Result<(), ReconcileError> {
        self.annotate_machine(&json!({ EXCLUDE_NODE_DRAINING: null, EXCLUDE_VOLUME_DETACH: null })).await
    }

    async fn annotate_machine(&self, annotations: &Value) -> Result<(), ReconcileError> {
        let Some(machine) = self.observed.machine.managed() else { return Ok(()) };
        let name = &machine.name;
        // With the uid, so that the API server rejects the patch of a Machine that replaced this one.
        let patch = json!({ "metadata": { "uid": machine.uid, "annotations": annotations } });
        let operation = Operation::new("annotate", format!("Machine {name}"));
        match self.write(operation, self.machines().patch(name, &patch_params(), &Patch::Merge(&patch))).await {
            Ok(patched) => {
                self.context.machines.apply_write_response(patched);
                debug!(machine = name, %annotations, "Annotated Machine");
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.context.machines.mark_deleted(self.key);
                Ok(())
            }
            Err(error) if error.request().is_some_and(is_uid_mismatch) => {
                Err(ReconcileError::Deleted { object: format!("Machine {name}") })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn delete_machine(&self, uid: &str) -> Result<(), ReconcileError> {
        let name = ChildNames::of(&self.key.name).machine;
        let operation = Operation::new("delete", format!("Machine {name}"));
        match self.delete(operation, &self.context.served.machines, (&name, uid)).await {
            Ok(machine) => {
                if let Some(machine) = machine {
                    self.context.machines.apply_write_response(machine);
                }
                info!(machine = name, "Deleted Machine");
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.context.machines.mark_deleted(self.key);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn machines(&self) -> Api<Machine> {
        Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &self.context.served.machines)
    }
}

/// Whether the API server rejected a patch because the object has another uid.
fn is_uid_mismatch(error: &RequestError) -> bool {
    let causes = error.status().into_iter().flat_map(|status| &status.details).flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.field == "metadata.uid")
}
