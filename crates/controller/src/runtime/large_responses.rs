//! Permits for large responses of workload clusters, shared by all of them.
//!
//! A permit goes to the namespace that was granted one longest ago, so that namespaces whose servers respond slowly, over and
//! over, do not keep out another one: it gets the next permit that is returned.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Large responses that are received at a time.
const MAX_LARGE: usize = 12;
const MAX_LARGE_PER_NAMESPACE: usize = 3;
/// The last grant of a namespace without requests is forgotten after as many others.
const REMEMBERED_GRANTS: u64 = 1000;

#[derive(Debug)]
pub(super) struct LargePermits {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    grants: u64,
    requests: u64,
    namespaces: HashMap<String, Share>,
}

#[derive(Debug, Default)]
struct Share {
    held: usize,
    /// Number of the last grant; 0 if there was none.
    last_grant: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Orders namespaces that were never granted one by arrival.
    sequence: u64,
    sender: oneshot::Sender<LargePermit>,
}

/// Returned when dropped.
#[derive(Debug)]
pub(super) struct LargePermit {
    permits: Arc<LargePermits>,
    namespace: String,
}

impl LargePermits {
    pub(super) fn new() -> Arc<Self> {
        let state = State { free: MAX_LARGE, grants: 0, requests: 0, namespaces: HashMap::new() };
        Arc::new(LargePermits { state: Mutex::new(state) })
    }

    pub(super) async fn acquire(self: Arc<Self>, namespace: String) -> LargePermit {
        let (sender, permit) = oneshot::channel();
        self.state.lock().wait(namespace, sender);
        self.grant();
        permit.await.expect("a waiting sender is removed only to grant, or after its receiver was dropped")
    }

    fn grant(self: &Arc<Self>) {
        let mut granted = Vec::new();
        let mut state = self.state.lock();
        while let Some((namespace, sender)) = state.next() {
            granted.push((sender, LargePermit { permits: Arc::clone(self), namespace }));
        }
        drop(state);
        // A receiver may have been dropped in the meantime: then its permit is dropped here, which needs the lock.
        for (sender, permit) in granted {
            drop(sender.send(permit));
        }
    }
}

impl State {
    fn wait(&mut self, namespace: String, sender: oneshot::Sender<LargePermit>) {
        self.requests += 1;
        let waiting = Waiting { sequence: self.requests, sender };
        self.namespaces.entry(namespace).or_default().waiting.push_back(waiting);
    }

    /// Takes a permit for the namespace that waits and was granted one longest ago.
    fn next(&mut self) -> Option<(String, oneshot::Sender<LargePermit>)> {
        for share in self.namespaces.values_mut() {
            share.waiting.retain(|waiting| !waiting.sender.is_closed());
        }
        let is_recent = |share: &Share| self.grants - share.last_grant < REMEMBERED_GRANTS && share.last_grant > 0;
        self.namespaces.retain(|_, share| share.held > 0 || !share.waiting.is_empty() || is_recent(share));
        if self.free == 0 {
            return None;
        }
        let waiting = self.namespaces.iter_mut().filter(|(_, share)| share.held < MAX_LARGE_PER_NAMESPACE);
        let waiting =
            waiting.filter_map(|(name, share)| Some((share.last_grant, share.waiting.front()?.sequence, name, share)));
        let (_, _, namespace, share) = waiting.min_by_key(|(last_grant, sequence, ..)| (*last_grant, *sequence))?;
        let sender = share.waiting.pop_front()?.sender;
        self.free -= 1;
        self.grants += 1;
        (share.held, share.last_grant) = (share.held + 1, self.grants);
        Some((namespace.clone(), sender))
    }
}

impl Drop for LargePermit {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        state.free += 1;
        if let Some(share) = state.namespaces.get_mut(&self.namespace) {
            share.held -= 1;
        }
        drop(state);
        self.permits.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn namespaces_that_hold_all_permits_do_not_keep_out_another_one() {
        let permits = LargePermits::new();
        let acquire = |namespace: &str| Arc::clone(&permits).acquire(namespace.to_owned()).boxed();
        // Four namespaces hold everything and wait for more.
        let mut hostile: Vec<_> = (0..40).map(|it| acquire(&format!("hostile-{}", it % 4))).collect();
        let mut held: Vec<_> = hostile.iter_mut().map(futures::FutureExt::now_or_never).collect();
        assert_eq!(held.iter().flatten().count(), MAX_LARGE);
        let mut honest = acquire("honest");
        assert!((&mut honest).now_or_never().is_none());
        // The next permit is for the namespace that has had none, although it waits last.
        held.remove(0);
        drop(honest.now_or_never().expect("a permit"));
        // Requests that were given up take no permit.
        drop((hostile, held));
        assert_eq!(permits.state.lock().free, MAX_LARGE);
    }

    #[tokio::test]
    async fn namespace_has_a_bounded_share() {
        let permits = LargePermits::new();
        let mut waiting: Vec<_> = (0..5).map(|_| Arc::clone(&permits).acquire("a".to_owned()).boxed()).collect();
        let held: Vec<_> = waiting.iter_mut().filter_map(futures::FutureExt::now_or_never).collect();
        assert_eq!(held.len(), MAX_LARGE_PER_NAMESPACE);
    }
}
