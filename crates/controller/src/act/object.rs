//! Writing the ScheduledMachine itself. Each write names the version that it was decided from, so that a later edit wins.

use fivespot_api::{ScheduledMachine, keys};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Pass;
use crate::cache::Heard;
use crate::trouble::{Trouble, is_not_found};

impl Pass<'_> {
    pub(super) async fn add_finalizer(&mut self) -> Result<(), Trouble> {
        let mut finalizers = self.object.finalizers().to_vec();
        finalizers.push(keys::FINALIZER.to_owned());
        self.patch_object(json!({ "metadata": { "finalizers": finalizers } })).await
    }

    pub(super) async fn remove_finalizer(&mut self) -> Result<(), Trouble> {
        let finalizers: Vec<&String> = self.object.finalizers().iter().filter(|it| *it != keys::FINALIZER).collect();
        self.patch_object(json!({ "metadata": { "finalizers": finalizers } })).await?;
        self.let_go = true;
        tracing::info!(object = %self.key, "nothing is left of the machine, and the object may go");
        Ok(())
    }

    pub(super) async fn disable_schedule(&mut self) -> Result<(), Trouble> {
        self.patch_object(json!({ "spec": { "schedule": { "enabled": false } } })).await
    }

    async fn patch_object(&mut self, patch: Value) -> Result<(), Trouble> {
        let what = format!("cannot write ScheduledMachine {}", self.key);
        let api = self.api();
        let patch = self.at_this_version(patch);
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&patch);
        let answer = self.write(&what, api.patch(&self.key.name, &params, &patch)).await?;
        self.take(&what, answer)
    }

    /// Writes the status. `patch` is what changes in it.
    pub(crate) async fn patch_status(&mut self, patch: Value) -> Result<(), Trouble> {
        let what = format!("cannot write the status of ScheduledMachine {}", self.key);
        let api = self.api();
        let patch = self.at_this_version(json!({ "status": patch }));
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&patch);
        let answer = self.write(&what, api.patch_status(&self.key.name, &params, &patch)).await?;
        self.take(&what, answer)
    }

    fn at_this_version(&self, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        patch
    }

    fn take(&mut self, what: &str, answer: Result<ScheduledMachine, kube::Error>) -> Result<(), Trouble> {
        match answer {
            Ok(mut object) => {
                object.metadata.managed_fields = None;
                if is_over(&object) {
                    self.context.objects.found_gone(&object);
                } else if let Heard::Changed { before, after } = self.context.objects.wrote(object.clone()) {
                    let phase = |it: &ScheduledMachine| it.status.as_ref().and_then(|it| it.phase);
                    self.context.metrics.moved(before.as_deref().and_then(phase), phase(&after));
                }
                self.object = object;
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.context.objects.found_gone(&self.object);
                Err(Trouble::Stale(format!("{what}: it is gone")))
            }
            Err(error) => Err(Trouble::of(what, &error)),
        }
    }

    fn api(&self) -> Api<ScheduledMachine> {
        Api::namespaced(self.context.client.clone(), &self.key.namespace)
    }
}

/// Whether this was the last that anybody saw of an object: it was being deleted, and nothing holds it any more.
fn is_over(object: &ScheduledMachine) -> bool {
    object.metadata.deletion_timestamp.is_some() && object.finalizers().is_empty()
}
