//! Writing the ScheduledMachine itself. Each write names the version that it was decided from, so that a later edit wins.

use fivespot_api::{ScheduledMachine, keys};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Pass;
use crate::trouble::{Trouble, is_not_found};

/// What came back, if something did.
type Answer = Result<Result<ScheduledMachine, kube::Error>, Trouble>;

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
        self.patch_object(json!({ "spec": { "schedule": { "enabled": false } } })).await?;
        self.done.schedule_disabled = true;
        Ok(())
    }

    async fn patch_object(&mut self, patch: Value) -> Result<(), Trouble> {
        let what = format!("cannot write ScheduledMachine {}", self.key);
        let api = self.api();
        let patch = self.at_this_version(patch);
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&patch);
        let answer = self.write(&what, api.patch(&self.key.name, &params, &patch)).await;
        self.take(&what, answer)
    }

    /// Writes the status. `patch` is what changes in it.
    pub(crate) async fn patch_status(&mut self, patch: Value) -> Result<(), Trouble> {
        let what = format!("cannot write the status of ScheduledMachine {}", self.key);
        let api = self.api();
        let patch = self.at_this_version(json!({ "status": patch }));
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&patch);
        let answer = self.write(&what, api.patch_status(&self.key.name, &params, &patch)).await;
        self.take(&what, answer)
    }

    fn at_this_version(&self, mut patch: Value) -> Value {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        patch
    }

    /// Takes the answer to a write. Without one it is not known what is stored, and the next pass has to ask: a decision
    /// from what was there before could act on an intent that has been dropped since.
    fn take(&mut self, what: &str, answer: Answer) -> Result<(), Trouble> {
        let taken = answer.and_then(|answer| self.take_answer(what, answer));
        if taken.is_err() {
            self.context.doubt(self.key);
        }
        taken
    }

    fn take_answer(&mut self, what: &str, answer: Result<ScheduledMachine, kube::Error>) -> Result<(), Trouble> {
        match answer {
            Ok(mut object) => {
                object.metadata.managed_fields = None;
                if is_over(&object) {
                    self.context.count(&self.context.objects.found_gone(&object));
                } else {
                    self.context.count(&self.context.objects.wrote(object.clone()));
                }
                self.object = object;
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.context.count(&self.context.objects.found_gone(&self.object));
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
