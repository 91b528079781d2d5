//! A simulated k0smotron: bootstrap, infrastructure and control plane provider to the letter of Cluster API's contract.
//!
//! It waits as a real one does: for the owner that Cluster API sets, for the bootstrap data, for the finalizer's turn.
//! What it cannot do is taken from it by RBAC, not by politeness: it runs as the user `simulated-provider`, who may read
//! but never write anything of `cluster.x-k8s.io`. So a Machine's status, nodeRef and finalizers are Cluster API's own.
//!
//! A `RemoteMachine` becomes a Node that KWOK keeps alive, or a [`crate::RealNode`], in the cluster its Machine belongs to.

mod behaviour;
mod bootstrap;
mod cluster;
mod context;
pub mod kinds;
mod machine;
mod node;
mod permissions;

use std::sync::Arc;
use std::thread::JoinHandle;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use tokio::sync::oneshot;

pub use self::behaviour::{BEHAVIOUR, Behaviour, Joining, Removal, Step};
pub use self::node::{node_name, provider_id};

use self::behaviour::Script;
use self::context::{Context, ProviderError, retry};
use self::kinds::ProviderKind;
use crate::access::Access;
use crate::capi::core_kind;
use crate::control_plane::{ControlPlane, SIMULATED_PROVIDER, StartError};
use crate::manifest;

/// The running provider. It has a thread and a runtime of its own, so that it outlives the test that started it.
#[derive(Debug)]
pub struct Provider {
    script: Arc<Script>,
    homes: Arc<node::Homes>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Installs the provider's kinds and permissions and starts it. Cluster API must have been installed before.
    pub async fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        let admin = plane.client();
        let crds: Vec<_> = kinds::ALL.iter().map(ProviderKind::crd).collect();
        manifest::apply_crds(&admin, &crds).await?;
        permissions::grant(&admin).await?;

        let unknown = || StartError::UnknownUser { name: SIMULATED_PROVIDER.to_owned() };
        let access = plane.access(SIMULATED_PROVIDER).ok_or_else(unknown)?;
        let script = Arc::new(Script::default());
        let homes = Arc::new(node::Homes::default());
        let log = plane.logs().join("simulated-provider.log");
        let context = Context::new(script.clone(), homes.clone(), &log).map_err(StartError::io(&log))?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("simulated-provider".to_owned())
            .spawn(move || run(&access, context, stopped))
            .map_err(StartError::io(&log))?;
        Ok(Self { script, homes, stop: Some(stop), thread: Some(thread) })
    }

    /// How every object behaves about which nothing else was said.
    pub fn behave(&self, behaviour: Behaviour) {
        self.script.set_default(behaviour);
    }

    /// How the objects of a namespace behave, present and future.
    pub fn behave_in(&self, namespace: &str, behaviour: Behaviour) {
        self.script.set_namespace(namespace, behaviour);
    }

    /// How one object (a `RemoteMachine` or a `K0sWorkerConfig`) behaves, whether or not it exists yet.
    pub fn behave_for(&self, namespace: &str, name: &str, behaviour: Behaviour) {
        self.script.set_object(namespace, name, behaviour);
    }

    /// Machines of this Cluster join another control plane than the one that manages them.
    pub async fn join_elsewhere(
        &self,
        namespace: &str,
        cluster: &str,
        workload: &ControlPlane,
    ) -> Result<(), StartError> {
        permissions::grant_nodes(&workload.client()).await?;
        let unknown = || StartError::UnknownUser { name: SIMULATED_PROVIDER.to_owned() };
        self.homes.set(namespace, cluster, workload.access(SIMULATED_PROVIDER).ok_or_else(unknown)?);
        Ok(())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the provider has been printed by its thread.
            let _ = thread.join();
        }
    }
}

/// Runs the provider's controllers on this thread until `stopped`.
fn run(access: &Access, context: Context, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread can be made");
    runtime.block_on(async {
        let context = Arc::new(context.with_client(access.client()));
        let controllers = kinds::ALL.iter().map(|kind| control(kind, &context));
        tokio::select! {
            _ = futures::future::join_all(controllers) => {}
            _ = stopped => {}
        }
    });
}

type Reconcile = fn(Arc<DynamicObject>, Arc<Context>) -> BoxFuture<'static, Result<Action, ProviderError>>;

/// One controller: every change of an object, of the Machine it belongs to, or of the script leads to a pass.
async fn control(kind: &'static ProviderKind, context: &Arc<Context>) {
    let resource = kind.api_resource();
    let objects: Api<DynamicObject> = Api::all_with(context.client(), &resource);
    let machines: Api<DynamicObject> = Api::all_with(context.client(), &core_kind("Machine"));
    let rewritten: UnboundedReceiver<()> = context.script.rewritten();
    let reconcile: Reconcile = match kind.role {
        kinds::Role::Bootstrap => |object, context| bootstrap::reconcile(object, context).boxed(),
        kinds::Role::Machine => |object, context| machine::reconcile(object, context).boxed(),
        kinds::Role::Cluster | kinds::Role::ControlPlane => {
            |object, context| cluster::reconcile(object, context).boxed()
        }
    };
    let mut controller =
        Controller::new_with(objects, watcher::Config::default(), resource.clone()).reconcile_all_on(rewritten);
    if kind.role == kinds::Role::Machine {
        controller =
            controller.watches_with(machines, core_kind("Machine"), watcher::Config::default(), move |owner| {
                let reference = owner.data.pointer("/spec/infrastructureRef/name").and_then(|name| name.as_str());
                let namespace = owner.metadata.namespace.clone().unwrap_or_default();
                reference.map(|name| ObjectRef::new_with(name, resource.clone()).within(&namespace))
            });
    }
    controller.run(reconcile, retry, context.clone()).for_each(|_| futures::future::ready(())).await;
}
