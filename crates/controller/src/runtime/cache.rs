//! Watch caches that also contain the responses to our own writes.
//!
//! A watch always lags a little. A reconcile that follows a write before the watch has delivered it would decide from the
//! previous state, so each write response is stored in the cache as well; the newer of the two stays.
//!
//! A list is a consistent read, so it contains every write that was answered before it began, and replaces what is cached,
//! also by older versions: after etcd was restored from a backup, versions go back. Only responses that arrived while the
//! list was in progress can be newer.
//!
//! A write response can contain more than what was written: another client's change that happened just before. Where that
//! matters ([`Cache::reporting_own_writes`]), the watch event of our own write is reported too, so that the object is
//! reconciled once more.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;

/// Writes whose event the watch has yet to deliver.
const MAX_OWN_WRITES: usize = 10_000;

/// A cache of all objects of one kind.
pub(crate) struct Cache<K>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Hash + Eq + Clone + Debug,
{
    kind: K::DynamicType,
    store: Store<K>,
    writer: Mutex<Writer<K>>,
    ready: AtomicBool,
    /// The highest resourceVersion that the watch has delivered, of any object. Lower after versions went back.
    watched_version: AtomicU64,
    /// The list in progress.
    list: Mutex<Option<ListInProgress>>,
    /// By uid, the resourceVersion of our own write that the watch has yet to deliver; `None` if it is not to be reported.
    own_writes: Option<Mutex<HashMap<String, u64>>>,
}

#[derive(Default)]
struct ListInProgress {
    /// The highest resourceVersion in it so far.
    version: u64,
    /// Uids of objects that were read or written since it began.
    responses: HashSet<String>,
}

/// What an event changed in the cache.
pub(crate) enum CacheEvent<K> {
    /// Nothing that was not known before.
    Unchanged,
    /// An object was created or changed.
    Applied { before: Option<Arc<K>>, after: K },
    /// An object was deleted.
    Deleted {
        object: K,
        /// Whether the object was in the cache until now.
        was_cached: bool,
    },
    /// All objects were listed, for the first time or again.
    Resynced,
}

impl<K> Cache<K>
where
    K: Resource + Clone + 'static,
    K: Lookup<DynamicType = <K as Resource>::DynamicType>,
    <K as Resource>::DynamicType: Hash + Eq + Clone + Debug,
{
    pub(crate) fn new(kind: <K as Resource>::DynamicType) -> Self {
        let writer = Writer::new(kind.clone());
        Cache {
            store: writer.as_reader(),
            kind,
            writer: Mutex::new(writer),
            ready: AtomicBool::new(false),
            watched_version: AtomicU64::new(0),
            list: Mutex::default(),
            own_writes: None,
        }
    }

    /// A cache that reports the watch event of our own write although the write response is in it already.
    pub(crate) fn reporting_own_writes(kind: <K as Resource>::DynamicType) -> Self {
        Cache { own_writes: Some(Mutex::default()), ..Self::new(kind) }
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new_with(name, self.kind.clone()).within(namespace))
    }

    pub(crate) fn get_cluster_scoped(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new_with(name, self.kind.clone()))
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The version up to which the watch has delivered all changes.
    pub(crate) fn watched_version(&self) -> u64 {
        self.watched_version.load(Ordering::Acquire)
    }

    /// Whether the first list is complete.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Waits until the first list is complete. Only one task may wait: the store wakes the last one that polled.
    pub(crate) async fn wait_until_ready(&self) {
        self.store.wait_until_ready().await.expect("the cache owns the writer of its store");
        // The store is ready before the rest of the event has been applied, which happens under this lock.
        drop(self.writer.lock());
    }

    /// Applies an event of the watch.
    pub(crate) fn apply_watch_event(&self, event: Event<K>) -> CacheEvent<K> {
        let mut writer = self.writer.lock();
        if let Event::Apply(object) | Event::Delete(object) = &event {
            self.watched_version.fetch_max(version(object).unwrap_or_default(), Ordering::AcqRel);
        }
        match event {
            Event::Apply(object) => {
                let is_own_write = self.take_own_write(&object);
                // A relist may have removed what the write response added: then the event is applied, not only reported.
                if is_own_write && self.cached(&object).is_some_and(|cached| !is_newer(&object, &cached)) {
                    return CacheEvent::Applied { before: None, after: object };
                }
                self.apply_if_newer(&mut writer, object)
            }
            Event::Delete(object) => {
                let cached = self.cached(&object);
                // The cached object was created with the same name after the deletion.
                if cached.as_ref().is_some_and(|cached| cached.uid() != object.uid()) {
                    return CacheEvent::Unchanged;
                }
                self.take_own_write(&object);
                writer.apply_watcher_event(&Event::Delete(object.clone()));
                CacheEvent::Deleted { object, was_cached: cached.is_some() }
            }
            Event::Init => {
                *self.list.lock() = Some(ListInProgress::default());
                writer.apply_watcher_event(&event);
                CacheEvent::Unchanged
            }
            Event::InitApply(object) => {
                if let Some(list) = &mut *self.list.lock() {
                    list.version = list.version.max(version(&object).unwrap_or_default());
                }
                writer.apply_watcher_event(&Event::InitApply(object));
                CacheEvent::Unchanged
            }
            Event::InitDone => {
                let list = self.list.lock().take().unwrap_or_default();
                let before = self.all();
                writer.apply_watcher_event(&event);
                let mut versions_went_back = false;
                for cached in before {
                    let listed = self.cached(&cached).filter(|listed| listed.uid() == cached.uid());
                    if listed.is_none_or(|listed| !is_newer(cached.as_ref(), &listed)) {
                        continue;
                    }
                    if cached.meta().uid.as_ref().is_some_and(|uid| list.responses.contains(uid)) {
                        writer.apply_watcher_event(&Event::Apply(Arc::unwrap_or_clone(cached)));
                    } else {
                        versions_went_back = true;
                    }
                }
                let watched = if versions_went_back { 0 } else { self.watched_version.load(Ordering::Acquire) };
                self.watched_version.store(watched.max(list.version), Ordering::Release);
                if let Some(own_writes) = &self.own_writes {
                    own_writes.lock().retain(|uid, _| list.responses.contains(uid));
                }
                self.ready.store(true, Ordering::Release);
                CacheEvent::Resynced
            }
        }
    }

    /// Applies an object that was just read or created. If the watch has delivered later versions and the cache has no such
    /// object, it has been deleted since and is not added.
    pub(crate) fn apply_read(&self, object: K) -> CacheEvent<K> {
        let mut writer = self.writer.lock();
        let is_behind_watch =
            version(&object).is_some_and(|version| version <= self.watched_version.load(Ordering::Acquire));
        if is_behind_watch && self.cached(&object).is_none() {
            return CacheEvent::Unchanged;
        }
        self.record_response(&object);
        self.apply_if_newer(&mut writer, object)
    }

    /// Applies the response to an update of a cached object. The watch can be faster than the response: an object whose
    /// deletion it has delivered is not added again.
    pub(crate) fn apply_write_response(&self, object: K) -> CacheEvent<K> {
        let mut writer = self.writer.lock();
        let before = self.cached(&object).filter(|cached| cached.uid() == object.uid() && is_newer(&object, cached));
        if before.is_none() {
            return CacheEvent::Unchanged;
        }
        self.record_response(&object);
        writer.apply_watcher_event(&Event::Apply(object.clone()));
        CacheEvent::Applied { before, after: object }
    }

    /// Removes an object that the API server reports as not found.
    pub(crate) fn mark_deleted(&self, object: &K) -> CacheEvent<K> {
        let mut writer = self.writer.lock();
        if self.cached(object).is_none_or(|cached| cached.uid() != object.uid()) {
            return CacheEvent::Unchanged;
        }
        writer.apply_watcher_event(&Event::Delete(object.clone()));
        CacheEvent::Deleted { object: object.clone(), was_cached: true }
    }

    /// Records a response: it may be newer than the list in progress, and than anything that the watch has delivered.
    fn record_response(&self, object: &K) {
        let (Some(uid), Some(version)) = (ResourceExt::uid(object), version(object)) else { return };
        if let Some(list) = &mut *self.list.lock() {
            list.responses.insert(uid.clone());
        }
        if let Some(own_writes) = &self.own_writes
            && version > self.watched_version.load(Ordering::Acquire)
        {
            let mut own_writes = own_writes.lock();
            // A server can send any uid and never the event. Without an entry, an event is reported as that of a newer version.
            if own_writes.len() >= MAX_OWN_WRITES {
                own_writes.clear();
            }
            own_writes.insert(uid, version);
        }
    }

    /// Whether the watch delivers exactly the version of our own write. A newer version is reported anyway.
    fn take_own_write(&self, object: &K) -> bool {
        let (Some(own_writes), Some(uid), Some(version)) =
            (&self.own_writes, ResourceExt::uid(object), version(object))
        else {
            return false;
        };
        let mut own_writes = own_writes.lock();
        match own_writes.get(&uid) {
            Some(own) if *own <= version => {
                let is_own_write = *own == version;
                own_writes.remove(&uid);
                is_own_write
            }
            Some(_) | None => false,
        }
    }

    fn apply_if_newer(&self, writer: &mut Writer<K>, object: K) -> CacheEvent<K> {
        let before = self.cached(&object);
        if before.as_ref().is_some_and(|before| !is_newer(&object, before)) {
            return CacheEvent::Unchanged;
        }
        writer.apply_watcher_event(&Event::Apply(object.clone()));
        CacheEvent::Applied { before, after: object }
    }

    fn cached(&self, object: &K) -> Option<Arc<K>> {
        match object.namespace() {
            Some(namespace) => self.get(&namespace, &object.name_any()),
            None => self.get_cluster_scoped(&object.name_any()),
        }
    }
}

/// Whether two versions of a trimmed object differ only in metadata that no decision reads.
pub(crate) fn is_unchanged<K: Resource + Clone + PartialEq>(before: &K, after: &K) -> bool {
    let without_version = |object: &K| {
        let mut object = object.clone();
        object.meta_mut().resource_version = None;
        object.meta_mut().generation = None;
        object
    };
    without_version(before) == without_version(after)
}

/// Whether `a` is newer than `b`. Resource versions of one kind are increasing numbers.
fn is_newer<K: Resource>(a: &K, b: &K) -> bool {
    match (version(a), version(b)) {
        (Some(a), Some(b)) => a > b,
        (None, _) | (_, None) => true,
    }
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref().and_then(|version| version.parse().ok())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(version: u32) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("n1".to_owned());
        node.metadata.uid = Some("u1".to_owned());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    fn cached_version(cache: &Cache<Node>) -> Option<String> {
        cache.get_cluster_scoped("n1").and_then(|node| node.metadata.resource_version.clone())
    }

    #[test]
    fn newer_write_response_survives_older_watch_event() {
        let cache = Cache::<Node>::new(());
        cache.apply_watch_event(Event::Apply(node(1)));
        cache.apply_write_response(node(2));
        cache.apply_watch_event(Event::Apply(node(1)));
        assert_eq!(cached_version(&cache).as_deref(), Some("2"));
    }

    #[test]
    fn late_response_does_not_restore_deleted_object() {
        let cache = Cache::<Node>::new(());
        cache.apply_watch_event(Event::Apply(node(1)));
        cache.apply_watch_event(Event::Delete(node(3)));
        assert!(matches!(cache.apply_write_response(node(2)), CacheEvent::Unchanged));
        assert!(matches!(cache.apply_read(node(2)), CacheEvent::Unchanged));
        assert!(cache.get_cluster_scoped("n1").is_none());
    }

    #[test]
    fn list_that_began_after_response_replaces_it() {
        let cache = Cache::<Node>::reporting_own_writes(());
        cache.apply_watch_event(Event::Apply(node(8)));
        cache.apply_write_response(node(9));
        // etcd was restored: versions go back, also below what the first attempt to list received.
        cache.apply_watch_event(Event::Init);
        cache.apply_watch_event(Event::InitApply(node(8)));
        cache.apply_watch_event(Event::Init);
        cache.apply_watch_event(Event::InitApply(node(3)));
        assert!(matches!(cache.apply_watch_event(Event::InitDone), CacheEvent::Resynced));
        assert_eq!(cached_version(&cache).as_deref(), Some("3"));
        assert!(matches!(cache.apply_watch_event(Event::Apply(node(4))), CacheEvent::Applied { before: Some(_), .. }));
        assert_eq!(cached_version(&cache).as_deref(), Some("4"));
        // An object with a version that was used before is not mistaken for a deleted one.
        let mut created = node(5);
        created.metadata.name = Some("n2".to_owned());
        created.metadata.uid = Some("u2".to_owned());
        assert!(matches!(cache.apply_read(created), CacheEvent::Applied { before: None, .. }));
    }

    #[test]
    fn response_during_list_is_not_lost() {
        for cache in [Cache::<Node>::new(()), Cache::reporting_own_writes(())] {
            cache.apply_watch_event(Event::Apply(node(1)));
            cache.apply_watch_event(Event::Init);
            cache.apply_watch_event(Event::InitApply(node(1)));
            cache.apply_write_response(node(2));
            cache.apply_watch_event(Event::InitDone);
            assert_eq!(cached_version(&cache).as_deref(), Some("2"), "the list replaced our own write");
            cache.apply_watch_event(Event::Apply(node(2)));
            assert_eq!(cached_version(&cache).as_deref(), Some("2"));

            // An object that was created after the list is not in it. Only the watch can tell whether it still exists.
            cache.apply_watch_event(Event::Delete(node(3)));
            cache.apply_watch_event(Event::Init);
            cache.apply_read(node(4));
            cache.apply_watch_event(Event::InitDone);
            assert!(matches!(cache.apply_watch_event(Event::Apply(node(4))), CacheEvent::Applied { .. }));
            assert_eq!(cached_version(&cache).as_deref(), Some("4"), "the watch event was not applied");
            // An object that was deleted before the list is removed by it.
            cache.apply_watch_event(Event::Init);
            cache.apply_watch_event(Event::InitDone);
            assert_eq!(cached_version(&cache), None);
        }
    }

    #[test]
    fn own_write_is_reported_again_only_on_request() {
        for (cache, reported) in [(Cache::<Node>::new(()), false), (Cache::reporting_own_writes(()), true)] {
            cache.apply_watch_event(Event::Apply(node(1)));
            cache.apply_write_response(node(3));
            // The response contained version 2, which another client wrote just before.
            assert!(matches!(cache.apply_watch_event(Event::Apply(node(2))), CacheEvent::Unchanged));
            let own_write = cache.apply_watch_event(Event::Apply(node(3)));
            assert_eq!(matches!(own_write, CacheEvent::Applied { .. }), reported);
            assert!(matches!(cache.apply_watch_event(Event::Apply(node(3))), CacheEvent::Unchanged));
            let next = cache.apply_watch_event(Event::Apply(node(4)));
            assert!(matches!(next, CacheEvent::Applied { before: Some(_), .. }));
        }
    }

    #[test]
    fn second_deletion_reports_object_as_not_cached() {
        let cache = Cache::<Node>::new(());
        cache.apply_watch_event(Event::Apply(node(1)));
        assert!(matches!(cache.mark_deleted(&node(1)), CacheEvent::Deleted { was_cached: true, .. }));
        let watched = cache.apply_watch_event(Event::Delete(node(2)));
        assert!(matches!(watched, CacheEvent::Deleted { was_cached: false, .. }));
    }

    #[test]
    fn read_adds_object_ahead_of_watch() {
        let cache = Cache::<Node>::new(());
        cache.apply_watch_event(Event::Delete(node(3)));
        assert!(matches!(cache.apply_read(node(4)), CacheEvent::Applied { before: None, .. }));
        assert!(cache.get_cluster_scoped("n1").is_some());
    }

    #[test]
    fn cache_is_ready_after_first_list() {
        let cache = Cache::<Node>::new(());
        assert!(!cache.is_ready() && cache.wait_until_ready().now_or_never().is_none());
        cache.apply_watch_event(Event::Init);
        assert!(!cache.is_ready() && cache.wait_until_ready().now_or_never().is_none());
        cache.apply_watch_event(Event::InitDone);
        assert!(cache.is_ready() && cache.wait_until_ready().now_or_never().is_some());
    }
}
