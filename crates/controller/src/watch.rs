//! Hearing of what happens in the management cluster, and calling the objects that it concerns.

use std::sync::Arc;

use fivespot_api::ScheduledMachine;
use futures::StreamExt as _;
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cache::{Heard, is_the_same};
use crate::cluster_api::{Cluster, Machine};
use crate::context::Context;
use crate::pauses::Pauses;
use crate::queue::Key;

/// The key of an object.
pub(crate) fn key<K: Resource>(object: &K) -> Key {
    Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

/// Hears of everything until the process ends. If a kind is not served any more, that is the answer.
pub(crate) async fn hear(context: Arc<Context>, namespace: Option<String>) -> Gone {
    let objects = match &namespace {
        Some(namespace) => Api::<ScheduledMachine>::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let machines = dynamic::<Machine>(&context, namespace.as_deref(), &context.served.machines);
    let clusters = dynamic::<Cluster>(&context, namespace.as_deref(), &context.served.clusters);
    tokio::select! {
        gone = follow("ScheduledMachine", objects, |event| hear_object(&context, event)) => gone,
        gone = follow("Machine", machines, |event| hear_machine(&context, event)) => gone,
        gone = follow("Cluster", clusters, |event| hear_cluster(&context, event)) => gone,
    }
}

/// A kind is not served any more.
pub(crate) struct Gone(pub(crate) &'static str);

fn dynamic<K>(context: &Context, namespace: Option<&str>, kind: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, kind),
        None => Api::all_with(context.client.clone(), kind),
    }
}

async fn follow<K>(kind: &'static str, api: Api<K>, hear: impl Fn(Event<K>)) -> Gone
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut stream = Box::pin(watch(api, watcher::Config::default()).backoff(Pauses::default()));
    loop {
        match stream.next().await {
            Some(Ok(event)) => hear(event),
            Some(Err(error)) if is_not_served(&error) => return Gone(kind),
            Some(Err(error)) => tracing::warn!(kind, error = fivespot_cli_support::chain(&error), "the watch failed"),
            None => return Gone(kind),
        }
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            crate::trouble::api_status(error)
        }
        _ => None,
    };
    status.is_some_and(|it| it.code == 404)
}

fn hear_object(context: &Context, event: Event<ScheduledMachine>) {
    let event = event.modify(|object| object.metadata.managed_fields = None);
    let heard = context.objects.hear(event);
    context.count(&heard);
    match heard {
        Heard::Nothing => {}
        Heard::Changed { after, .. } => {
            context.machines.expect(&key(&after));
            context.queue.push(key(&after));
        }
        Heard::Gone { object, .. } => {
            context.machines.expect_no_more(&key(&object));
            context.queue.push(key(&object));
        }
        Heard::All => {
            let all = context.objects.all();
            context.machines.expect_only(all.iter().map(|it| key(it.as_ref())));
            for object in all {
                context.queue.push(key(object.as_ref()));
            }
        }
    }
}

fn hear_machine(context: &Context, event: Event<Machine>) {
    let heard = context.machines.cache.hear(event.modify(Machine::trim));
    // A Node that two claim is nobody's, so whoever else claims it is concerned too.
    let before = context.machines.claimants(&heard);
    context.machines.note_claims(&heard);
    let after = context.machines.claimants(&heard);
    if before != after {
        before.union(&after).filter_map(|it| context.machines.object_of(it)).for_each(|key| context.queue.push(key));
    }
    let concerned = match &heard {
        Heard::Nothing => None,
        Heard::Changed { before: Some(before), after } if is_the_same(before.as_ref(), after) => None,
        Heard::Changed { after, .. } => context.machines.wanted_by(after),
        Heard::Gone { object, .. } => context.machines.wanted_by(object),
        Heard::All => {
            context.objects.all().iter().for_each(|it| context.queue.push(key(it.as_ref())));
            None
        }
    };
    if let Some(key) = concerned {
        context.queue.push(key);
    }
}

fn hear_cluster(context: &Context, event: Event<Cluster>) {
    let (namespace, name) = match context.clusters.hear(event.modify(Cluster::trim)) {
        Heard::Nothing => return,
        Heard::Changed { before: Some(before), after } if is_the_same(before.as_ref(), &after) => return,
        Heard::Changed { after, .. } => (after.namespace(), Some(after.name_any())),
        Heard::Gone { object, .. } => (object.namespace(), Some(object.name_any())),
        Heard::All => (None, None),
    };
    for object in context.objects.all() {
        let machine = context.machines.of(&key(object.as_ref()));
        // A machine stays where it is when the spec is edited.
        let joins = name.as_ref().is_none_or(|name| {
            *name == object.spec.cluster_name || machine.is_some_and(|it| *name == it.spec.cluster_name)
        });
        if joins && namespace.as_ref().is_none_or(|it| Some(it) == object.namespace().as_ref()) {
            context.queue.push(key(object.as_ref()));
        }
    }
}
