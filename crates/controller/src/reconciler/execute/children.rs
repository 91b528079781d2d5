//! Creating the children of a machine, and deleting provider objects that Cluster API left behind.

use fivespot_planner::children::{self, Owner};
use fivespot_planner::observed::Ref;
use fivespot_planner::plan::Role;
use fivespot_planner::status::CreatedMachine;
use kube::{Api, ResourceExt as _};
use serde::de::IgnoredAny;
use tracing::{debug, info};

use crate::capi::{Child, Machine, ProviderObjectMeta};
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::write::with_uid;
use crate::runtime::request::{Operation, RequestError};

impl Scope<'_> {
    pub(super) async fn create_children(&mut self) -> Result<(), ReconcileError> {
        // The response to the stored intent had the inline specs. After a restart they are read.
        let inline_specs = match self.inline_specs.take() {
            Some(inline_specs) => Some(inline_specs),
            None => self.read_object().await?.inline_specs,
        };
        let (Ok(spec), Some(desired), Some(inline)) = (&self.spec, &self.observed.desired, &inline_specs) else {
            return Err(ReconcileError::NothingToCreate);
        };
        let uid = self.object.uid().unwrap_or_default();
        let owner = Owner { name: &self.key.name, namespace: &self.key.namespace, uid: &uid };
        let children = children::build(owner, spec, inline, self.context.served.version);
        let refs = &desired.refs;
        // Nothing is created unless both kinds are served.
        self.context.kinds.resolve(&refs.bootstrap).await?;
        self.context.kinds.resolve(&refs.infrastructure).await?;
        self.outcome.bootstrap_uid = Some(self.create_provider_object(&refs.bootstrap, children.bootstrap).await?);
        self.outcome.infrastructure_uid =
            Some(self.create_provider_object(&refs.infrastructure, children.infrastructure).await?);
        self.outcome.machine = Some(self.create_machine(&desired.machine, children.machine).await?);
        Ok(())
    }

    async fn create_provider_object(&self, reference: &Ref, manifest: String) -> Result<String, ReconcileError> {
        let resource = self.context.kinds.resolve(reference).await?;
        let name = format!("{} {}", reference.kind, reference.name);
        let created: Result<ProviderObjectMeta, _> =
            self.create(Operation::new("create", &name), &resource, manifest).await;
        match created {
            Ok(created) => {
                debug!(kind = reference.kind, name = reference.name, "Created provider object");
                Ok(created.uid().unwrap_or_default())
            }
            Err(error) if error.request().is_some_and(RequestError::is_already_exists) => {
                let namespace = &self.key.namespace;
                let api: Api<ProviderObjectMeta> =
                    Api::namespaced_with(self.context.client.clone(), namespace, &resource);
                let existing = self.use_existing(name, api.get(&reference.name)).await?;
                Ok(existing.uid().unwrap_or_default())
            }
            Err(error) => {
                if error.is_not_found() {
                    self.context.kinds.forget(reference);
                }
                Err(error)
            }
        }
    }

    async fn create_machine(&self, name: &str, manifest: String) -> Result<CreatedMachine, ReconcileError> {
        let operation = Operation::new("create", format!("Machine {name}"));
        let machine: Machine = match self.create(operation, &self.context.served.machines, manifest).await {
            Ok(created) => {
                info!(machine = name, "Created Machine");
                created
            }
            Err(error) if error.request().is_some_and(RequestError::is_already_exists) => {
                self.use_existing(format!("Machine {name}"), self.machines().get(name)).await?
            }
            Err(error) => return Err(error),
        };
        let created = CreatedMachine {
            uid: machine.uid().unwrap_or_default(),
            created_at: machine.creation_timestamp().map(|it| it.0),
        };
        self.context.machines.apply_read(machine);
        Ok(created)
    }

    /// Uses an object that already exists, if an earlier reconcile created it.
    async fn use_existing<K: Child>(
        &self,
        object: String,
        read: impl Future<Output = Result<K, kube::Error>>,
    ) -> Result<K, ReconcileError> {
        let found = self.write(Operation::new("read", &object), read).await?;
        let uid = self.object.uid().unwrap_or_default();
        let controlled = found.ownership().controller_kind().is_some_and(|kind| kind != "Machine");
        if controlled || !found.ownership().is_owned_by(&uid) {
            return Err(ReconcileError::NameConflict { object });
        }
        if found.meta().deletion_timestamp.is_some() {
            return Err(ReconcileError::StillDeleting { object });
        }
        Ok(found)
    }

    pub(super) async fn delete_provider_object(&self, role: Role, uid: &str) -> Result<(), ReconcileError> {
        let Some(refs) = &self.observed.stored.refs else { return Ok(()) };
        let reference = match role {
            Role::Bootstrap => &refs.bootstrap,
            Role::Infrastructure => &refs.infrastructure,
        };
        let resource = self.context.kinds.resolve_any_version(reference).await?;
        let operation = Operation::new("delete", format!("{} {}", reference.kind, reference.name));
        match self.delete::<IgnoredAny>(operation, &resource, (&reference.name, with_uid(uid))).await {
            Ok(_) => {
                info!(kind = reference.kind, name = reference.name, "Deleted provider object");
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
