//! Permits for requests about pods of one cluster, shared by all drains.
//!
//! An admission webhook of a namespace may hang. Its pods may be on many Nodes, so a limit per drain is not sufficient: no
//! namespace of pods keeps out another one, and requests about pods leave connections for those about Nodes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::runtime::request::Origin;

/// Requests about pods of one namespace that are in flight.
const MAX_PER_NAMESPACE: usize = 3;
/// Requests about pods that are in flight. Fewer than the requests that one workload cluster may have in flight.
const MAX_IN_WORKLOAD_CLUSTER: usize = 12;
/// The same in the management cluster, which is shared by all tenants.
const MAX_IN_MANAGEMENT_CLUSTER: usize = 64;

#[derive(Debug)]
pub(super) struct PodPermits {
    all: Arc<Semaphore>,
    by_namespace: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Allows one request about a pod, until it is dropped.
#[derive(Debug)]
pub(crate) struct PodPermit {
    _namespace: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl PodPermits {
    pub(super) fn new(origin: Origin) -> Self {
        let max = match origin {
            Origin::Workload => MAX_IN_WORKLOAD_CLUSTER,
            Origin::Management => MAX_IN_MANAGEMENT_CLUSTER,
        };
        PodPermits { all: Arc::new(Semaphore::new(max)), by_namespace: Mutex::default() }
    }

    pub(super) async fn acquire(&self, namespace: &str) -> PodPermit {
        // In this order, so that requests that wait for a hanging namespace keep out no other.
        let namespace = acquire(self.share(namespace)).await;
        PodPermit { _namespace: namespace, _all: acquire(Arc::clone(&self.all)).await }
    }

    fn share(&self, namespace: &str) -> Arc<Semaphore> {
        let mut by_namespace = self.by_namespace.lock();
        if let Some(share) = by_namespace.get(namespace).and_then(Weak::upgrade) {
            return share;
        }
        by_namespace.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(MAX_PER_NAMESPACE));
        by_namespace.insert(namespace.to_owned(), Arc::downgrade(&share));
        share
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn hanging_namespace_on_many_nodes_keeps_out_no_other() {
        let permits = PodPermits::new(Origin::Workload);
        // Eight drains, each with pods of a namespace whose webhook hangs.
        let mut hanging: Vec<_> = (0..24).map(|_| permits.acquire("hanging").boxed()).collect();
        let held: Vec<_> = hanging.iter_mut().filter_map(futures::FutureExt::now_or_never).collect();
        assert_eq!(held.len(), MAX_PER_NAMESPACE);
        for namespace in ["a", "b", "c"] {
            for _ in 0..10 {
                assert!(permits.acquire(namespace).now_or_never().is_some());
            }
        }
        drop((hanging, held));
        permits.acquire("other").await;
        assert_eq!((permits.all.available_permits(), permits.by_namespace.lock().len()), (MAX_IN_WORKLOAD_CLUSTER, 1));
    }
}
