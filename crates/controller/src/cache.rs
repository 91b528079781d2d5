//! What an API server holds, as far as it has been heard of, and a little ahead of that: the answers to our own writes.
//!
//! A watch is always a little behind. A pass that wrote something and is followed by another before the watch has told of
//! it would decide from the past, so each answer to a write goes into the cache as well, and the newer of the two stays.
//!
//! An answer can hold more than what was written: what somebody else changed just before. Where that matters, the watch's
//! word of our own write is passed on as well, so that whoever cares looks once more.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::lock::lock;

/// A cache of one kind.
pub(crate) struct Cache<K>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Hash + Eq + Clone + Debug,
{
    kind: K::DynamicType,
    store: Store<K>,
    writer: Mutex<Writer<K>>,
    synced: AtomicBool,
    /// The newest version that the watch has told of, of any object.
    heard: AtomicU64,
    /// The versions, by uid, that the watch has yet to tell of; `None` if that is nobody's concern.
    ahead: Option<Mutex<HashMap<String, u64>>>,
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
            synced: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            ahead: None,
        }
    }

    /// One whose watch passes on what it tells of our own writes, too.
    pub(crate) fn that_tells_again(kind: <K as Resource>::DynamicType) -> Self {
        Cache { ahead: Some(Mutex::default()), ..Self::new(kind) }
    }

    /// The object of this name, where names have a namespace.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new_with(name, self.kind.clone()).within(namespace))
    }

    /// The object of this name, where they have none.
    pub(crate) fn get_global(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new_with(name, self.kind.clone()))
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Whether everything that there was at the start has been heard of.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Takes what a watch tells. What it was before comes back, so that whoever cares can see what changed.
    pub(crate) fn hear(&self, event: Event<K>) -> Heard<K> {
        let mut writer = self.lock();
        if let Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) = &event {
            self.heard.fetch_max(version(object).unwrap_or_default(), Ordering::AcqRel);
        }
        match event {
            Event::Apply(object) => {
                let told_before = self.has_caught_up(&object);
                // A list that was under way may have taken out again what an answer had brought in.
                if told_before && self.known(&object).is_some_and(|it| !is_newer(&object, &it)) {
                    return Heard::Changed { before: None, after: object };
                }
                self.take(&mut writer, object)
            }
            Event::Delete(object) => {
                let known = self.known(&object);
                // What took its place since then is another one.
                if known.as_ref().is_some_and(|it| it.uid() != object.uid()) {
                    return Heard::Nothing;
                }
                self.has_caught_up(&object);
                writer.apply_watcher_event(&Event::Delete(object.clone()));
                Heard::Gone { object, was_known: known.is_some() }
            }
            Event::Init | Event::InitApply(_) => {
                writer.apply_watcher_event(&event);
                Heard::Nothing
            }
            Event::InitDone => {
                let before = self.all();
                writer.apply_watcher_event(&event);
                // A list can be older than the answer to a write, also to one that was sent while it was under way.
                for ours in before {
                    let listed = self.known(&ours).filter(|it| it.uid() == ours.uid());
                    if listed.is_some_and(|it| is_newer(ours.as_ref(), &it)) {
                        writer.apply_watcher_event(&Event::Apply(Arc::unwrap_or_clone(ours)));
                    }
                }
                self.synced.store(true, Ordering::Release);
                Heard::All
            }
        }
    }

    /// Takes an object that the API server has just shown us: one that we made, or that we asked for. If the watch has
    /// told of later things already and there is none such, it has been and gone.
    pub(crate) fn saw(&self, object: K) -> Heard<K> {
        let mut writer = self.lock();
        let is_late = version(&object).is_some_and(|it| it <= self.heard.load(Ordering::Acquire));
        if is_late && self.known(&object).is_none() {
            return Heard::Nothing;
        }
        self.run_ahead(&object);
        self.take(&mut writer, object)
    }

    /// Takes the answer to a write of ours to an object that was known. A watch can be faster than an answer: what it has
    /// told to be gone does not come back by one.
    pub(crate) fn wrote(&self, object: K) -> Heard<K> {
        let mut writer = self.lock();
        let before = self.known(&object).filter(|it| it.uid() == object.uid() && is_newer(&object, it));
        if before.is_none() {
            return Heard::Nothing;
        }
        self.run_ahead(&object);
        writer.apply_watcher_event(&Event::Apply(object.clone()));
        Heard::Changed { before, after: object }
    }

    /// Takes it that an object is not there any more.
    pub(crate) fn found_gone(&self, object: &K) -> Heard<K> {
        let mut writer = self.lock();
        if self.known(object).is_none_or(|it| it.uid() != object.uid()) {
            return Heard::Nothing;
        }
        writer.apply_watcher_event(&Event::Delete(object.clone()));
        Heard::Gone { object: object.clone(), was_known: true }
    }

    /// An answer is newer than anything that the watch has told.
    fn run_ahead(&self, object: &K) {
        if let (Some(ahead), Some(uid), Some(version)) = (&self.ahead, ResourceExt::uid(object), version(object))
            && version > self.heard.load(Ordering::Acquire)
        {
            lock(ahead).insert(uid, version);
        }
    }

    /// Whether the watch tells of just what an answer told before. Of anything newer it tells by itself.
    fn has_caught_up(&self, object: &K) -> bool {
        let (Some(ahead), Some(uid), Some(version)) = (&self.ahead, ResourceExt::uid(object), version(object)) else {
            return false;
        };
        let mut ahead = lock(ahead);
        match ahead.get(&uid) {
            Some(awaited) if *awaited <= version => {
                let told_before = *awaited == version;
                ahead.remove(&uid);
                told_before
            }
            Some(_) | None => false,
        }
    }

    fn take(&self, writer: &mut Writer<K>, object: K) -> Heard<K> {
        let before = self.known(&object);
        if before.as_ref().is_some_and(|it| !is_newer(&object, it)) {
            return Heard::Nothing;
        }
        writer.apply_watcher_event(&Event::Apply(object.clone()));
        Heard::Changed { before, after: object }
    }

    fn lock(&self) -> MutexGuard<'_, Writer<K>> {
        lock(&self.writer)
    }

    fn known(&self, object: &K) -> Option<Arc<K>> {
        match object.namespace() {
            Some(namespace) => self.get(&namespace, &object.name_any()),
            None => self.get_global(&object.name_any()),
        }
    }
}

/// What came of an event.
pub(crate) enum Heard<K> {
    /// Nothing that is not known already.
    Nothing,
    /// An object is there, or is another than before.
    Changed {
        /// What it was.
        before: Option<Arc<K>>,
        /// What it is.
        after: K,
    },
    /// An object has gone.
    Gone {
        /// What it was.
        object: K,
        /// Whether it was in the cache until now.
        was_known: bool,
    },
    /// Everything has been heard of, for the first time or anew.
    All,
}

/// Whether nothing changed that anybody reads.
pub(crate) fn is_the_same<K: Resource + Clone + PartialEq>(before: &K, after: &K) -> bool {
    let without_version = |it: &K| {
        let mut it = it.clone();
        it.meta_mut().resource_version = None;
        it.meta_mut().generation = None;
        it
    };
    without_version(before) == without_version(after)
}

/// Whether `a` is newer than `b`. Resource versions of one kind are numbers that grow.
fn is_newer<K: Resource>(a: &K, b: &K) -> bool {
    match (version(a), version(b)) {
        (Some(a), Some(b)) => a > b,
        (None, _) | (_, None) => true,
    }
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref().and_then(|it| it.parse().ok())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(version: u32) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("n1".to_owned());
        node.metadata.uid = Some("u1".to_owned());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    #[test]
    fn an_answer_that_is_newer_than_the_watch_counts() {
        let cache = Cache::<Node>::new(());
        cache.hear(Event::Apply(node(1)));
        cache.wrote(node(2));
        cache.hear(Event::Apply(node(1)));
        assert_eq!(cache.get_global("n1").unwrap().metadata.resource_version.as_deref(), Some("2"));
    }

    #[test]
    fn what_is_gone_does_not_come_back_by_an_answer_that_is_late() {
        let cache = Cache::<Node>::new(());
        cache.hear(Event::Apply(node(1)));
        cache.hear(Event::Delete(node(3)));
        assert!(matches!(cache.wrote(node(2)), Heard::Nothing));
        assert!(matches!(cache.saw(node(2)), Heard::Nothing));
        assert!(cache.get_global("n1").is_none());
    }

    #[test]
    fn a_list_that_is_older_than_an_answer_takes_nothing_back() {
        let cache = Cache::<Node>::new(());
        cache.hear(Event::Apply(node(1)));
        cache.hear(Event::Init);
        cache.hear(Event::InitApply(node(1)));
        cache.wrote(node(2));
        cache.hear(Event::Init);
        cache.hear(Event::InitApply(node(1)));
        cache.hear(Event::InitDone);
        assert_eq!(cache.get_global("n1").unwrap().metadata.resource_version.as_deref(), Some("2"));
    }

    #[test]
    fn an_answer_that_comes_while_a_list_is_under_way_is_not_lost() {
        for cache in [Cache::<Node>::new(()), Cache::that_tells_again(())] {
            let version = || cache.get_global("n1").and_then(|it| it.metadata.resource_version.clone());
            cache.hear(Event::Apply(node(1)));
            cache.hear(Event::Init);
            cache.hear(Event::InitApply(node(1)));
            cache.wrote(node(2));
            cache.hear(Event::InitDone);
            assert_eq!(version().as_deref(), Some("2"), "our own write was forgotten");
            cache.hear(Event::Apply(node(2)));
            assert_eq!(version().as_deref(), Some("2"));

            // What was made after the list is not in it. Whether it is there still, only the watch can tell; it does.
            cache.hear(Event::Delete(node(3)));
            cache.hear(Event::Init);
            cache.saw(node(4));
            cache.hear(Event::InitDone);
            assert!(matches!(cache.hear(Event::Apply(node(4))), Heard::Changed { .. }));
            assert_eq!(version().as_deref(), Some("4"), "what the watch told of was not taken");
            // What was gone before the list does not come back by it.
            cache.hear(Event::Init);
            cache.hear(Event::InitDone);
            assert_eq!(version(), None);
        }
    }

    #[test]
    fn a_write_of_ours_is_told_once_more_by_the_watch_where_that_matters() {
        for (cache, again) in [(Cache::<Node>::new(()), false), (Cache::<Node>::that_tells_again(()), true)] {
            cache.hear(Event::Apply(node(1)));
            cache.wrote(node(3));
            // What somebody else did just before us was in our answer.
            assert!(matches!(cache.hear(Event::Apply(node(2))), Heard::Nothing));
            assert_eq!(matches!(cache.hear(Event::Apply(node(3))), Heard::Changed { .. }), again);
            assert!(matches!(cache.hear(Event::Apply(node(3))), Heard::Nothing));
            assert!(matches!(cache.hear(Event::Apply(node(4))), Heard::Changed { before: Some(_), .. }));
        }
    }

    #[test]
    fn what_is_gone_twice_was_there_once() {
        let cache = Cache::<Node>::new(());
        cache.hear(Event::Apply(node(1)));
        assert!(matches!(cache.found_gone(&node(1)), Heard::Gone { was_known: true, .. }));
        assert!(matches!(cache.hear(Event::Delete(node(2))), Heard::Gone { was_known: false, .. }));
    }

    #[test]
    fn what_the_watch_has_not_told_of_yet_is_taken_from_an_answer() {
        let cache = Cache::<Node>::new(());
        cache.hear(Event::Delete(node(3)));
        assert!(matches!(cache.saw(node(4)), Heard::Changed { before: None, .. }));
        assert!(cache.get_global("n1").is_some());
    }
}
