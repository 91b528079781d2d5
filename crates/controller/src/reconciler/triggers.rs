//! Which watch event of the management cluster reconciles which object.

use kube::core::DynamicResourceScope;
use kube::runtime::watcher::Event;
use kube::{Api, Resource, ResourceExt as _};

use super::context::Context;
use crate::capi::{Cluster, Machine, SharedResource};
use crate::object::StoredObject;
use crate::runtime::cache::{CacheEvent, is_unchanged};
use crate::runtime::health::Health;
use crate::runtime::watches::{NotServed, watch};
use crate::runtime::workqueue::Key;

/// Watches ScheduledMachines, Machines and Clusters. Returns only if one of these kinds is no longer served.
pub(crate) async fn watch_all(context: &Context, health: &Health, namespace: Option<&str>) -> NotServed {
    let objects = match namespace {
        Some(namespace) => Api::<StoredObject>::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let machines = dynamic_api::<Machine>(context, namespace, &context.served.machines);
    let clusters = dynamic_api::<Cluster>(context, namespace, &context.served.clusters);
    tokio::select! {
        not_served = watch("ScheduledMachine", objects, health, |event| on_scheduled_machine(context, event)) => not_served,
        not_served = watch("Machine", machines, health, |event| on_machine(context, event)) => not_served,
        not_served = watch("Cluster", clusters, health, |event| on_cluster(context, event)) => not_served,
    }
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
    let event = context.objects.apply_watch_event(event);
    context.count_phase(&event);
    match event {
        CacheEvent::Unchanged => {}
        CacheEvent::Applied { after, .. } => {
            context.machines.add_owner(&Key::of(&after));
            context.queue.add(Key::of(&after));
        }
        CacheEvent::Deleted { object, .. } => {
            context.machines.remove_owner(&Key::of(&object));
            context.queue.add(Key::of(&object));
        }
        CacheEvent::Resynced => {
            let all = context.objects.all();
            context.machines.set_owners(all.iter().map(|object| Key::of(object.as_ref())));
            reconcile_all(context);
        }
    }
}

fn on_machine(context: &Context, event: Event<Machine>) {
    let event = context.machines.cache.apply_watch_event(event);
    // A Node that two Machines claim belongs to neither, so a change of the claims concerns both.
    let before = context.machines.claimants(&event);
    context.machines.update_claims(&event);
    let after = context.machines.claimants(&event);
    if before != after {
        let owners = before.union(&after).filter_map(|machine| context.machines.owner_by_key(machine));
        owners.for_each(|key| context.queue.add(key));
    }
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
        context.queue.add(key);
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
        let key = Key::of(object.as_ref());
        // A machine stays in its Cluster when `clusterName` is edited, so both Clusters concern it.
        let is_member = name == object.spec.cluster_name
            || context.machines.get(&key).is_some_and(|machine| name == machine.spec.cluster_name);
        if is_member && namespace == object.namespace() {
            context.queue.add(key);
        }
    }
}

fn reconcile_all(context: &Context) {
    context.objects.all().iter().for_each(|object| context.queue.add(Key::of(object.as_ref())));
}
