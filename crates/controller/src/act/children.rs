//! Making a machine: the bootstrap object, the infrastructure object, then the Machine that refers to both.

use fivespot_api::{conditions::ReferencesValid, keys};
use fivespot_planner::children::{self, Owner};
use fivespot_planner::observed::Ref;
use fivespot_planner::plan::Role;
use fivespot_planner::status::Made;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use super::Pass;
use crate::cluster_api::{Machine, is_owned_by};
use crate::trouble::{Trouble, api_status, is_not_found};

impl Pass<'_> {
    pub(super) async fn create_children(&mut self) -> Result<(), Trouble> {
        let (Ok(spec), Some(wanted)) = (&self.scene.spec, &self.scene.seen.wanted) else {
            return Err(Trouble::Stale("the spec does not say which objects to create".to_owned()));
        };
        let uid = self.object.uid().unwrap_or_default();
        let owner = Owner { name: &self.key.name, namespace: &self.key.namespace, uid: &uid };
        let children = children::build(owner, spec, self.context.served.version);
        let refs = &wanted.refs;
        // Nothing is begun that cannot be finished.
        self.context.kinds.find(&refs.bootstrap).await?;
        self.context.kinds.find(&refs.infrastructure).await?;
        self.done.bootstrap = Some(self.create_provider(&refs.bootstrap, &children.bootstrap).await?);
        self.done.infrastructure = Some(self.create_provider(&refs.infrastructure, &children.infrastructure).await?);
        self.done.machine = Some(self.create_machine(&children.machine).await?);
        Ok(())
    }

    async fn create_provider(&self, of: &Ref, object: &Value) -> Result<String, Trouble> {
        let kind = self.context.kinds.find(of).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &kind);
        let what = format!("cannot create {} {}", of.kind, of.name);
        let object: DynamicObject = parse(&what, object)?;
        match self.write(&what, api.create(&params(), &object)).await? {
            Ok(created) => Ok(created.uid().unwrap_or_default()),
            Err(error) if is_taken(&error) => {
                self.is_it_ours(&what, api.get(&of.name)).await.map(|it| it.uid().unwrap_or_default())
            }
            Err(error) if is_not_found(&error) => {
                self.context.kinds.forget(of);
                Err(Trouble::of(&what, &error))
            }
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    async fn create_machine(&self, object: &Value) -> Result<Made, Trouble> {
        let machines = self.machines();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("cannot create Machine {name}");
        // What we read of a Machine is only a part of it, so it is created whole.
        let whole: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &self.context.served.machines);
        let object: DynamicObject = parse(&what, object)?;
        let machine = match self.write(&what, whole.create(&params(), &object)).await? {
            Ok(created) => created.try_parse().map_err(|error| Trouble::Hiccup(format!("{what}: {error}")))?,
            Err(error) if is_taken(&error) => self.is_it_ours(&what, machines.get(name)).await?,
            Err(error) => return Err(Trouble::of(&what, &error)),
        };
        let made = Made { uid: machine.uid().unwrap_or_default(), at: machine.creation_timestamp().map(|it| it.0) };
        self.context.machines.saw(machine);
        Ok(made)
    }

    /// An object of the name is there: it is ours if an earlier pass made it.
    async fn is_it_ours<K: kube::Resource>(
        &self,
        what: &str,
        read: impl Future<Output = Result<K, kube::Error>>,
    ) -> Result<K, Trouble> {
        let found = match self.write(what, read).await? {
            Ok(found) => found,
            Err(error) => return Err(Trouble::of(what, &error)),
        };
        let uid = self.object.uid().unwrap_or_default();
        let controlled = found.owner_references().iter().any(|it| it.controller == Some(true) && it.kind != "Machine");
        if controlled || !is_owned_by(found.meta(), &uid) {
            return Err(Trouble::Refused {
                why: format!(
                    "{what}: there is one of that name already, and it is not ours; remove it, or rename this object"
                ),
                references: Some(ReferencesValid::NameConflict),
            });
        }
        if found.meta().deletion_timestamp.is_some() {
            return Err(Trouble::Stale(format!("{what}: an earlier one is still on its way out")));
        }
        Ok(found)
    }

    pub(super) async fn delete_provider(&self, role: Role, uid: &str) -> Result<(), Trouble> {
        let Some(refs) = &self.scene.seen.stored.refs else { return Ok(()) };
        let of = match role {
            Role::Bootstrap => &refs.bootstrap,
            Role::Infrastructure => &refs.infrastructure,
        };
        let kind = self.context.kinds.find_in_any_version(of).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &kind);
        let what = format!("cannot delete {} {}", of.kind, of.name);
        match self.write(&what, api.delete(&of.name, &only(uid))).await? {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    pub(super) fn machines(&self) -> Api<Machine> {
        Api::namespaced_with(self.context.client.clone(), &self.key.namespace, &self.context.served.machines)
    }
}

/// Deletes the object of this uid, and none that took its place.
pub(super) fn only(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn parse(what: &str, object: &Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object.clone())
        .map_err(|error| Trouble::Refused { why: format!("{what}: {error}"), references: None })
}

fn is_taken(error: &kube::Error) -> bool {
    api_status(error).is_some_and(|it| it.reason == "AlreadyExists")
}
