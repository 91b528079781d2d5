//! A simulated provider: implements the bootstrap, infrastructure and control plane contracts of Cluster API for the kinds
//! of k0smotron.
//!
//! Like a real provider it waits for the owner reference that Cluster API sets and for the bootstrap data, and uses a
//! finalizer. It runs as the user `simulated-provider`, whose RBAC allows it to read but not to write `cluster.x-k8s.io`: only
//! Cluster API can write a Machine's status, nodeRef and finalizers.
//!
//! A `RemoteMachine` becomes a Node that KWOK simulates, or a [`crate::RealNode`], in the workload cluster of its Machine.

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

pub use self::behaviour::{BEHAVIOUR_ANNOTATION, Behaviour, Joining, Removal, Step};
pub use self::node::{node_name, provider_id};

use self::behaviour::BehaviourRules;
use self::context::{Context, ProviderError, retry};
use self::kinds::ProviderKind;
use crate::access::Access;
use crate::capi::core_kind;
use crate::control_plane::{ControlPlane, SIMULATED_PROVIDER, StartError};
use crate::manifest;

/// The running provider. It has its own thread and runtime, so that it outlives the test that started it.
#[derive(Debug)]
pub struct Provider {
    rules: Arc<BehaviourRules>,
    workload_clusters: Arc<node::WorkloadClusters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    /// Installs the provider's CRDs and RBAC, and starts it. Cluster API must already be installed.
    pub async fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        let admin = plane.client();
        let crds: Vec<_> = kinds::ALL.iter().map(ProviderKind::crd).collect();
        manifest::apply_crds(&admin, &crds).await?;
        permissions::grant_management(&admin).await?;

        let unknown = || StartError::UnknownUser { name: SIMULATED_PROVIDER.to_owned() };
        let access = plane.access(SIMULATED_PROVIDER).ok_or_else(unknown)?;
        let rules = Arc::new(BehaviourRules::default());
        let workload_clusters = Arc::new(node::WorkloadClusters::default());
        let log = plane.logs().join("simulated-provider.log");
        let context = Context::new(rules.clone(), workload_clusters.clone(), &log).map_err(StartError::io(&log))?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("simulated-provider".to_owned())
            .spawn(move || run(&access, context, stopped))
            .map_err(StartError::io(&log))?;
        Ok(Self { rules, workload_clusters, stop: Some(stop), thread: Some(thread) })
    }

    /// Sets the default behaviour.
    pub fn behave(&self, behaviour: Behaviour) {
        self.rules.set_default(behaviour);
    }

    /// Sets the behaviour of existing and future objects of a namespace.
    pub fn behave_in(&self, namespace: &str, behaviour: Behaviour) {
        self.rules.set_namespace(namespace, behaviour);
    }

    /// Sets the behaviour of one `RemoteMachine` or `K0sWorkerConfig`, which need not exist yet.
    pub fn behave_for(&self, namespace: &str, name: &str, behaviour: Behaviour) {
        self.rules.set_object(namespace, name, behaviour);
    }

    /// Makes the machines of a Cluster join another control plane than the management cluster.
    pub async fn set_workload_cluster(
        &self,
        namespace: &str,
        cluster: &str,
        workload: &ControlPlane,
    ) -> Result<(), StartError> {
        permissions::grant_workload(&workload.client()).await?;
        let unknown = || StartError::UnknownUser { name: SIMULATED_PROVIDER.to_owned() };
        self.workload_clusters.set(namespace, cluster, workload.access(SIMULATED_PROVIDER).ok_or_else(unknown)?);
        Ok(())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic, if any.
            let _ = thread.join();
        }
    }
}

/// Runs the provider's controllers on this thread until `stopped`.
fn run(access: &Access, context: Context, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime can be built");
    runtime.block_on(async {
        let context = Arc::new(context.with_client(access.client()));
        let controllers = kinds::ALL.iter().map(|kind| run_controller(kind, &context));
        tokio::select! {
            _ = futures::future::join_all(controllers) => {}
            _ = stopped => {}
        }
    });
}

type Reconcile = fn(Arc<DynamicObject>, Arc<Context>) -> BoxFuture<'static, Result<Action, ProviderError>>;

/// Reconciles an object after each change of the object, of its Machine, or of the behaviour rules.
async fn run_controller(kind: &'static ProviderKind, context: &Arc<Context>) {
    let resource = kind.api_resource();
    let objects: Api<DynamicObject> = Api::all_with(context.client(), &resource);
    let machines: Api<DynamicObject> = Api::all_with(context.client(), &core_kind("Machine"));
    let rule_changes: UnboundedReceiver<()> = context.rules.changes();
    let reconcile: Reconcile = match kind.role {
        kinds::Role::Bootstrap => |object, context| bootstrap::reconcile(object, context).boxed(),
        kinds::Role::Machine => |object, context| machine::reconcile(object, context).boxed(),
        kinds::Role::Cluster | kinds::Role::ControlPlane => {
            |object, context| cluster::reconcile(object, context).boxed()
        }
    };
    let mut controller =
        Controller::new_with(objects, watcher::Config::default(), resource.clone()).reconcile_all_on(rule_changes);
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
