//! Writes to the Node of the Machine. Each carries the `resourceVersion` that it was computed from and is recomputed from
//! the current Node on a conflict.

use fivespot_api::{NodeTaint, keys};
use fivespot_planner::observed::ManagedNode;
use fivespot_planner::taints::{self, diff, record};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::clusters::WorkloadClient;
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::observe::recorded_taints;
use crate::reconciler::write::patch_params;
use crate::runtime::request::{Operation, RequestError};

/// Attempts of a write that conflicts with other clients.
const MAX_ATTEMPTS: u32 = 5;

/// The annotations of a reclaim request.
const RECLAIM_REQUEST: [&str; 3] =
    [keys::RECLAIM_REQUESTED_ANNOTATION, keys::RECLAIM_REASON_ANNOTATION, keys::RECLAIM_REQUESTED_AT_ANNOTATION];

/// Annotations of a merge patch that removes a reclaim request.
pub(super) fn no_reclaim_request() -> Value {
    RECLAIM_REQUEST.iter().map(|key| ((*key).to_owned(), Value::Null)).collect()
}

impl Scope<'_> {
    pub(super) async fn cordon(&self) -> Result<(), ReconcileError> {
        let cordoned_by = self.key.to_string();
        let patched = self
            .patch_node("cordon", |node| {
                let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
                let patch = json!({
                    "metadata": { "annotations": { keys::CORDONED_BY_ANNOTATION: cordoned_by } },
                    "spec": { "unschedulable": true },
                });
                (!unschedulable).then_some(patch)
            })
            .await?;
        if let Some(node) = patched
            && self.allows_log("cordon")
        {
            info!(node, "Cordoned Node");
        }
        Ok(())
    }

    pub(super) async fn uncordon(&self) -> Result<(), ReconcileError> {
        let patched = self
            .patch_node("uncordon", |node| {
                let patch = json!({
                    "metadata": { "annotations": { keys::CORDONED_BY_ANNOTATION: null } },
                    "spec": { "unschedulable": null },
                });
                node.annotations().contains_key(keys::CORDONED_BY_ANNOTATION).then_some(patch)
            })
            .await?;
        if let Some(node) = patched
            && self.allows_log("uncordon")
        {
            info!(node, "Uncordoned Node");
        }
        Ok(())
    }

    /// Writes the taints and the record of what was applied in one patch, so that no crash separates them.
    pub(super) async fn apply_taints(
        &mut self,
        desired: &[NodeTaint],
        applied: &[NodeTaint],
    ) -> Result<(), ReconcileError> {
        let status = Mutex::new(None);
        let patched = self
            .patch_node("taint", |node| {
                let on_node = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
                let applied = recorded_taints(node).unwrap_or_else(|| applied.to_vec());
                let diff = diff(desired, &on_node, &applied);
                *status.lock() = Some(taints::status(desired, &diff));
                let record = record(&diff.applied);
                let recorded = node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION);
                let patch = json!({
                    "metadata": { "annotations": { keys::APPLIED_TAINTS_ANNOTATION: record } },
                    "spec": { "taints": diff.taints },
                });
                (diff.is_changed || record.as_ref() != recorded).then_some(patch)
            })
            .await?;
        if let Some(node) = patched
            && self.allows_log("taint")
        {
            info!(node, taints = desired.len(), "Applied taints");
        }
        self.outcome.taints = status.into_inner();
        Ok(())
    }

    pub(super) async fn clear_reclaim_request(&self) -> Result<(), ReconcileError> {
        let patched = self
            .patch_node("clear the reclaim request on", |node| {
                let has_request = RECLAIM_REQUEST.iter().any(|key| node.annotations().contains_key(*key));
                has_request.then(|| json!({ "metadata": { "annotations": no_reclaim_request() } }))
            })
            .await?;
        if let Some(node) = patched {
            debug!(node, "Cleared reclaim request");
        }
        Ok(())
    }

    /// Whether to log a write that a server which reverts it can cause any number of times.
    pub(super) fn allows_log(&self, what: &str) -> bool {
        self.context.workload_clusters.allows_log(self.key, what)
    }

    /// The Node of the Machine with a client for its cluster; `None` if there is no Node.
    pub(super) fn node(&self) -> Result<Option<(WorkloadClient, &ManagedNode)>, ReconcileError> {
        let Some(node) = self.observed.node.managed() else { return Ok(None) };
        let client = self.context.workload_clusters.client_for(self.key).ok_or(ReconcileError::Disconnected)?;
        Ok(Some((client, node)))
    }

    /// Applies the merge patch that `patch` computes from the current Node; sends nothing if it computes none. Returns the
    /// name of the Node if it was patched.
    pub(super) async fn patch_node(
        &self,
        verb: &'static str,
        patch: impl Fn(&Node) -> Option<Value>,
    ) -> Result<Option<String>, ReconcileError> {
        let Some((client, managed)) = self.node()? else { return Ok(None) };
        let operation = Operation::new(verb, format!("Node {}", managed.name));
        let mut cached = client.cached_node(&managed.name);
        for _ in 0..MAX_ATTEMPTS {
            let current = if let Some(node) = cached.take() {
                node
            } else {
                let read = client.get_node(&managed.name);
                let Some(node) = self.write_to_workload(&client, operation.clone(), read).await? else {
                    return Ok(None);
                };
                node.into()
            };
            // Another Node with the same name has replaced it.
            if current.uid().as_ref() != Some(&managed.uid) {
                return Ok(None);
            }
            let Some(mut patch) = patch(&current) else { return Ok(None) };
            patch["metadata"]["resourceVersion"] = json!(current.resource_version());
            let params = patch_params();
            let request = client.patch_node(&managed.name, &params, &patch);
            match self.write_to_workload(&client, operation.clone(), request).await {
                Ok(patched) => {
                    client.apply_write_response(patched);
                    return Ok(Some(managed.name.clone()));
                }
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.request().is_some_and(RequestError::is_conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ReconcileError::RepeatedConflict { operation, attempts: MAX_ATTEMPTS })
    }
}
