//! Which watch event of the management cluster reconciles which object.

use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::Event;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::context::Context;
use crate::capi::{Cluster, Machine, SharedResource};
use crate::object::StoredObject;
use crate::runtime::cache::{CacheEvent, is_unchanged};
use crate::runtime::health::Health;
use crate::runtime::watches::{NotServed, watch};
use crate::runtime::workqueue::Key;

/// Watches ScheduledMachines, Machines and Clusters. Returns only if one of these kinds is no longer served.
///
/// Each watch is a task of its own, so that many events of one kind delay neither the others nor the caller.
pub(crate) async fn watch_all(context: &Arc<Context>, health: &Arc<Health>, namespace: Option<&str>) -> NotServed {
    let objects = match namespace {
        Some(namespace) => Api::<StoredObject>::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let machines = dynamic_api::<Machine>(context, namespace, &context.served.machines);
    let clusters = dynamic_api::<Cluster>(context, namespace, &context.served.clusters);
    let mut watches = JoinSet::new();
    watches.spawn(run("ScheduledMachine", objects, (context, health), on_scheduled_machine));
    watches.spawn(run("Machine", machines, (context, health), on_machine));
    watches.spawn(run("Cluster", clusters, (context, health), on_cluster));
    let ended = watches.join_next().await.expect("three watches were started");
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn run<K>(
    kind: &'static str,
    api: Api<K>,
    (context, health): (&Arc<Context>, &Arc<Health>),
    handle: fn(&Context, Event<K>),
) -> BoxFuture<'static, NotServed>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (context, health) = (Arc::clone(context), Arc::clone(health));
    async move { watch(kind, api, &health, |event| handle(&context, event)).await }.boxed()
}

fn dynamic_api<K>(context: &Context, namespace: Option<&str>, resource: &SharedResource) -> Api<K>
where
    K: Resource<DynamicType = SharedResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, resource),
        None => Api::all_with(context.client.clone(), resource),
    }
}

fn on_scheduled_machine(context: &Context, event: Event<StoredObject>) {
    if matches!(event, Event::Init) {
        context.shards.list_started();
    }
    let event = context.objects.apply_watch_event(event);
    context.count_object(&event);
    match event {
        CacheEvent::Unchanged => {}
        CacheEvent::Applied { after, .. } => {
            context.machines.add_owner(&Key::of(&after));
            context.enqueue(Key::of(&after));
        }
        CacheEvent::Deleted { object, .. } => {
            context.machines.remove_owner(&Key::of(&object));
            context.enqueue(Key::of(&object));
        }
        CacheEvent::Resynced => {
            context.shards.list_done();
            let all = context.objects.all();
            context.machines.set_owners(all.iter().map(|object| Key::of(object.as_ref())));
            reconcile_all(context);
        }
    }
}

fn on_machine(context: &Context, event: Event<Machine>) {
    let (event, with_same_claim) = context.machines.apply_watch_event(event);
    let owners = with_same_claim.iter().filter_map(|machine| context.machines.owner_by_key(machine));
    owners.for_each(|key| context.enqueue(key));
    let owner = match &event {
        CacheEvent::Unchanged => None,
        CacheEvent::Applied { before: Some(before), after } if is_unchanged(before.as_ref(), after) => None,
        CacheEvent::Applied { after, .. } => context.machines.owner_of(after),
        CacheEvent::Deleted { object, .. } => context.machines.owner_of(object),
        CacheEvent::Resynced => {
            reconcile_all(context);
            None
        }
    };
    if let Some(key) = owner {
        context.enqueue(key);
    }
}

fn on_cluster(context: &Context, event: Event<Cluster>) {
    let (namespace, name) = match context.clusters.apply_watch_event(event) {
        CacheEvent::Unchanged => return,
        CacheEvent::Applied { before: Some(before), after } if is_unchanged(before.as_ref(), &after) => return,
        CacheEvent::Applied { after, .. } => (after.namespace(), after.name_any()),
        CacheEvent::Deleted { object, .. } => (object.namespace(), object.name_any()),
        CacheEvent::Resynced => return reconcile_all(context),
    };
    for object in context.objects.all() {
        // First, because it is cheap: a tenant's event must not cost much for the objects of all others.
        if object.metadata.namespace != namespace {
            continue;
        }
        let key = Key::of(object.as_ref());
        // A machine stays in its Cluster when `clusterName` is edited, so both Clusters concern it.
        let is_member = name == object.spec.cluster_name
            || context.machines.get(&key).is_some_and(|machine| name == machine.spec.cluster_name);
        if is_member {
            context.enqueue(key);
        }
    }
}

fn reconcile_all(context: &Context) {
    context.objects.all().iter().for_each(|object| context.enqueue(Key::of(object.as_ref())));
}
