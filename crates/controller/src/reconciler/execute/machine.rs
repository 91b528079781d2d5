//! Annotating and deleting the Machine.

use fivespot_planner::children::ChildNames;
use fivespot_planner::observed::Exclusions;
use kube::api::{Patch, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::capi::{Child as _, EXCLUDE_NODE_DRAINING, EXCLUDE_VOLUME_DETACH, Machine};
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::write::patch_params;
use crate::runtime::request::{Operation, RequestError};

/// Attempts of a delete while other clients change the Machine.
const MAX_ATTEMPTS: u32 = 5;

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

    /// Deletes the Machine in the version that is known, so that a process that was stopped before it sends this does not
    /// delete one that is in use again. Cluster API changes Machines often: after a conflict, the current version is deleted if
    /// it is the same Machine and still managed by this object.
    pub(super) async fn delete_machine(&self, uid: &str) -> Result<(), ReconcileError> {
        let name = ChildNames::of(&self.key.name).machine;
        let operation = Operation::new("delete", format!("Machine {name}"));
        let known = self.context.machines.get(self.key).filter(|machine| machine.uid().as_deref() == Some(uid));
        let mut version = known.and_then(|machine| machine.resource_version());
        for _ in 0..MAX_ATTEMPTS {
            let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
            match self.delete(operation.clone(), &self.context.served.machines, (&name, preconditions)).await {
                Ok(machine) => {
                    if let Some(machine) = machine {
                        self.context.machines.apply_write_response(machine);
                    }
                    info!(machine = name, "Deleted Machine");
                    return Ok(());
                }
                Err(error) if error.is_not_found() => {
                    self.context.machines.mark_deleted(self.key);
                    return Ok(());
                }
                Err(error) if error.request().is_some_and(RequestError::is_conflict) => {
                    version = Some(self.version_to_delete(&name, uid).await?.ok_or(error)?);
                }
                Err(error) => return Err(error),
            }
        }
        Err(ReconcileError::RepeatedConflict { operation, attempts: MAX_ATTEMPTS })
    }

    /// The current version of the Machine; `None` if it is another one, or no longer managed by this object.
    async fn version_to_delete(&self, name: &str, uid: &str) -> Result<Option<String>, ReconcileError> {
        let operation = Operation::new("read", format!("Machine {name}"));
        let Some(machine) = self.write(operation, self.machines().get_opt(name)).await? else { return Ok(None) };
        let is_managed = machine.ownership().is_owned_by(&self.object.uid().unwrap_or_default())
            && machine.ownership().controller_kind().is_none();
        let version = machine.resource_version().filter(|_| is_managed && machine.uid().as_deref() == Some(uid));
        self.context.machines.apply_read(machine);
        Ok(version)
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
