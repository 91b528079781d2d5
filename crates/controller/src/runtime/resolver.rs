//! Resolves names of API servers, a few at a time.
//!
//! The C library resolves a name in a thread that cannot be interrupted, and the name server of a tenant may be slow. There is
//! a limited number of threads for the whole process, so each namespace has a share of them.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::vec::IntoIter;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tower::Service;

/// Lookups of one namespace in progress.
const MAX_PER_NAMESPACE: usize = 4;
/// Lookups of all workload clusters in progress: half of the threads that Tokio has for blocking calls.
const MAX_LOOKUPS: usize = 256;

type Lookup = fn(&str) -> io::Result<IntoIter<SocketAddr>>;

/// Permits for lookups, shared by all workload clusters.
#[derive(Debug)]
pub(super) struct Lookups {
    all: Arc<Semaphore>,
    by_namespace: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Lookups {
    pub(super) fn new() -> Self {
        Lookups { all: Arc::new(Semaphore::new(MAX_LOOKUPS)), by_namespace: Mutex::default() }
    }

    /// A resolver for a Cluster of this namespace.
    pub(super) fn resolver(&self, namespace: &str) -> Resolver {
        let mut by_namespace = self.by_namespace.lock();
        by_namespace.retain(|_, share| share.strong_count() > 0);
        let share = by_namespace.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            let share = Arc::new(Semaphore::new(MAX_PER_NAMESPACE));
            by_namespace.insert(namespace.to_owned(), Arc::downgrade(&share));
            share
        });
        Resolver { share, all: Arc::clone(&self.all), lookup }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    share: Arc<Semaphore>,
    all: Arc<Semaphore>,
    lookup: Lookup,
}

impl Resolver {
    /// A resolver for the management cluster, which waits for no other.
    pub(super) fn of_management_cluster() -> Self {
        let permits = || Arc::new(Semaphore::new(MAX_PER_NAMESPACE));
        Resolver { share: permits(), all: permits(), lookup }
    }
}

impl Service<Name> for Resolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<IntoIter<SocketAddr>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Resolver { share, all, lookup } = self.clone();
        let resolve = async move {
            // In this order, so that a namespace that waits for its share keeps out no other.
            let share = share.acquire_owned().await.map_err(io::Error::other)?;
            let all = all.acquire_owned().await.map_err(io::Error::other)?;
            let resolved = tokio::task::spawn_blocking(move || {
                // Returned when the thread is free, not when the request is given up.
                let _permits = (share, all);
                lookup(name.as_str())
            });
            resolved.await.map_err(io::Error::other)?
        };
        resolve.boxed()
    }
}

fn lookup(name: &str) -> io::Result<IntoIter<SocketAddr>> {
    (name, 0).to_socket_addrs()
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    static RELEASED: (std::sync::Mutex<bool>, Condvar) = (std::sync::Mutex::new(false), Condvar::new());

    /// A name server that does not respond until the end of the test.
    fn hang(_: &str) -> io::Result<IntoIter<SocketAddr>> {
        let released = RELEASED.0.lock().unwrap();
        drop(RELEASED.1.wait_while(released, |released| !*released).unwrap());
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Lets the threads end, also if the test fails.
    struct ReleaseOnDrop;

    impl Drop for ReleaseOnDrop {
        fn drop(&mut self) {
            *RELEASED.0.lock().unwrap() = true;
            RELEASED.1.notify_all();
        }
    }

    #[tokio::test]
    async fn slow_name_server_occupies_the_threads_of_its_namespace_only() {
        let (lookups, _release) = (Lookups::new(), ReleaseOnDrop);
        let mut hostile = Resolver { lookup: hang, ..lookups.resolver("hostile") };
        let name = || "api.example.com".parse::<Name>().unwrap();
        // Each request is given up, and its thread is not.
        for _ in 0..20 {
            let _ = tokio::time::timeout(Duration::from_millis(20), hostile.call(name())).await;
        }
        assert_eq!(lookups.all.available_permits(), MAX_LOOKUPS - MAX_PER_NAMESPACE);
        assert_eq!(lookups.resolver("hostile").share.available_permits(), 0);
        let mut honest = Resolver { lookup: |_| Ok(Vec::new().into_iter()), ..lookups.resolver("honest") };
        honest.call(name()).await.unwrap();
    }
}
