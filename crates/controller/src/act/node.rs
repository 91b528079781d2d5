//! Writing the Node of our Machine, wherever it lives. Each write names the version that was looked at, and is computed
//! anew from the Node as it is now if somebody was faster.

use std::sync::{Mutex, PoisonError};

use fivespot_api::{NodeTaint, keys};
use fivespot_planner::observed;
use fivespot_planner::taints::{diff, record, standing};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Pass;
use crate::lock::lock;
use crate::observe::recorded_taints;
use crate::trouble::{Trouble, api_status, is_not_found};
use crate::workload::Reach;

/// How often a write is tried that somebody else is faster than.
const TRIES: u32 = 5;

impl Pass<'_> {
    pub(super) async fn cordon(&self) -> Result<(), Trouble> {
        let by = self.key.to_string();
        self.patch_node("cordon", |node| {
            let closed = node.spec.as_ref().and_then(|it| it.unschedulable) == Some(true);
            let patch = json!({
                "metadata": { "annotations": { keys::CORDONED_BY_ANNOTATION: by } },
                "spec": { "unschedulable": true },
            });
            (!closed).then_some(patch)
        })
        .await
    }

    pub(super) async fn uncordon(&self) -> Result<(), Trouble> {
        self.patch_node("uncordon", |node| {
            let patch = json!({
                "metadata": { "annotations": { keys::CORDONED_BY_ANNOTATION: null } },
                "spec": { "unschedulable": null },
            });
            node.annotations().contains_key(keys::CORDONED_BY_ANNOTATION).then_some(patch)
        })
        .await
    }

    /// Writes taints and the record of what is ours in one patch, so that no crash comes between the two.
    pub(super) async fn taint(&mut self, wanted: &[NodeTaint], told: &[NodeTaint]) -> Result<(), Trouble> {
        let written = Mutex::new(None);
        let outcome = self
            .patch_node("taint", |node| {
                let on_node = node.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default();
                let ours = recorded_taints(node).unwrap_or_else(|| told.to_vec());
                let diff = diff(wanted, &on_node, &ours);
                *lock(&written) = Some(standing(wanted, &diff));
                let record = record(&diff.applied);
                let recorded = node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION);
                let patch = json!({
                    "metadata": { "annotations": { keys::APPLIED_TAINTS_ANNOTATION: record } },
                    "spec": { "taints": diff.taints },
                });
                (diff.is_news || record.as_ref() != recorded).then_some(patch)
            })
            .await;
        if outcome.is_ok() {
            self.done.tainted = written.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        outcome
    }

    pub(super) async fn clear_request(&self) -> Result<(), Trouble> {
        let request = [
            keys::RECLAIM_REQUESTED_ANNOTATION,
            keys::RECLAIM_REASON_ANNOTATION,
            keys::RECLAIM_REQUESTED_AT_ANNOTATION,
        ];
        self.patch_node("clear the request on", |node| {
            let nulls: serde_json::Map<String, Value> =
                request.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
            let asked = request.iter().any(|key| node.annotations().contains_key(*key));
            asked.then(|| json!({ "metadata": { "annotations": nulls } }))
        })
        .await
    }

    /// The way to the Node of our Machine. `None` if there is no Node to reach.
    pub(super) fn reach(&self) -> Result<Option<(Reach, &observed::OurNode)>, Trouble> {
        let observed::Node::Ours(node) = &self.scene.seen.node else { return Ok(None) };
        let reach = self.context.workloads.reach(self.key);
        reach
            .map(|reach| Some((reach, node)))
            .ok_or_else(|| Trouble::Hiccup("the workload cluster cannot be reached any more".to_owned()))
    }

    /// Patches the Node as `patch` says; nothing is sent if it says nothing.
    pub(super) async fn patch_node(&self, verb: &str, patch: impl Fn(&Node) -> Option<Value>) -> Result<(), Trouble> {
        let Some((reach, ours)) = self.reach()? else { return Ok(()) };
        let what = format!("cannot {verb} Node {}", ours.name);
        let nodes = reach.nodes();
        let mut node = reach.known(&ours.name);
        for _ in 0..TRIES {
            let current = match node.take() {
                Some(node) => node,
                None => match self.ask(&reach, &what, nodes.get_opt(&ours.name)).await? {
                    Ok(Some(node)) => node.into(),
                    Ok(None) => return Ok(()),
                    Err(error) => return Err(Trouble::of(&what, &error)),
                },
            };
            // One that took its place is not ours.
            if current.uid().as_ref() != Some(&ours.uid) {
                return Ok(());
            }
            let Some(mut patch) = patch(&current) else { return Ok(()) };
            patch["metadata"]["resourceVersion"] = json!(current.resource_version());
            let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match self.ask(&reach, &what, nodes.patch(&ours.name, &params, &Patch::Merge(&patch))).await? {
                Ok(written) => {
                    reach.wrote(written);
                    return Ok(());
                }
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) if api_status(&error).is_some_and(|it| it.code == 409) => {}
                Err(error) => return Err(Trouble::of(&what, &error)),
            }
        }
        Err(Trouble::Stale(format!("{what}: others write it all the time")))
    }

    /// Sends a request to a workload cluster, unless the process is to end.
    pub(super) async fn ask<T>(
        &self,
        reach: &Reach,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Trouble> {
        if self.context.stopping.is_cancelled() {
            return Err(Trouble::Stopping);
        }
        reach.ask(what, request).await
    }
}
