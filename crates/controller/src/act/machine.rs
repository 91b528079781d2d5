//! Telling Cluster API how a Machine is to go, and that it is to go.

use fivespot_api::keys;
use fivespot_planner::children::ChildNames;
use fivespot_planner::observed::Marks;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Pass;
use super::children::only;
use crate::cluster_api::{NO_DRAIN, NO_VOLUMES};
use crate::trouble::{Trouble, api_status, is_not_found};

/// The value of an annotation of which only its being there counts.
const MARKED: &str = "true";

/// Whether a patch was refused because the object of that name is another one by now.
fn is_another(error: &kube::Error) -> bool {
    let causes = api_status(error).into_iter().flat_map(|it| &it.details).flat_map(|it| &it.causes);
    causes.into_iter().any(|it| it.field == "metadata.uid")
}

impl Pass<'_> {
    pub(super) async fn mark(&self, marks: Marks) -> Result<(), Trouble> {
        let mut annotations = json!({});
        for (wanted, annotation) in [(marks.no_drain, NO_DRAIN), (marks.no_volumes, NO_VOLUMES)] {
            if wanted {
                annotations[annotation] = json!(MARKED);
            }
        }
        self.annotate_machine(&annotations).await
    }

    pub(super) async fn unmark(&self) -> Result<(), Trouble> {
        self.annotate_machine(&json!({ NO_DRAIN: null, NO_VOLUMES: null })).await
    }

    async fn annotate_machine(&self, annotations: &Value) -> Result<(), Trouble> {
        let Some(machine) = self.scene.seen.machine.ours() else { return Ok(()) };
        let name = ChildNames::of(&self.key.name).machine;
        let what = format!("cannot annotate Machine {name}");
        // With its uid, so that a namesake which took its place is refused.
        let patch = json!({ "metadata": { "uid": machine.uid, "annotations": annotations } });
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let machines = self.machines();
        match self.write(&what, machines.patch(&name, &params, &Patch::Merge(&patch))).await? {
            Ok(machine) => {
                self.context.machines.wrote(machine);
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.context.machines.found_gone(self.key);
                Ok(())
            }
            Err(error) if is_another(&error) => Err(Trouble::Stale(format!("{what}: another took its place"))),
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    pub(super) async fn delete_machine(&self, uid: &str) -> Result<(), Trouble> {
        let name = ChildNames::of(&self.key.name).machine;
        let what = format!("cannot delete Machine {name}");
        let machines = self.machines();
        match self.write(&what, machines.delete(&name, &only(uid))).await? {
            Ok(answer) => {
                if let Some(machine) = answer.left() {
                    self.context.machines.wrote(machine);
                }
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.context.machines.found_gone(self.key);
                Ok(())
            }
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }
}
