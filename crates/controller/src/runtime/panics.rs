//! A panic in the work on one object or one workload cluster ends that work, not the process: data of one tenant may be able
//! to cause it, and all tenants share the process. Any other panic aborts, because a task that ended silently would leave
//! its part undone until the next restart.

use std::panic::{AssertUnwindSafe, PanicHookInfo};

use futures::FutureExt as _;

use crate::runtime::request::truncate;

tokio::task_local! {
    /// Set while a future runs whose panic is caught.
    static ISOLATED: ();
}

/// The future panicked. The log has the cause.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs a future and catches its panic. What the future shares with others must not be left half changed by a panic: locks
/// are held for single operations of collections only, and permits are returned when they are dropped.
pub(crate) async fn isolate<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    ISOLATED.scope((), AssertUnwindSafe(future).catch_unwind()).await.map_err(|_| Panicked)
}

/// Logs panics, and aborts on those that nothing catches.
pub(crate) fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, error = message(info), "Panic");
        if !is_isolated() {
            std::process::abort();
        }
    }));
}

fn is_isolated() -> bool {
    ISOLATED.try_with(|()| ()).is_ok()
}

fn message(info: &PanicHookInfo<'_>) -> String {
    truncate(info.payload_as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_ends_only_the_isolated_future() {
        assert!(!is_isolated());
        let panics = async {
            tokio::task::yield_now().await;
            assert!(!is_isolated(), "caught");
        };
        isolate(panics).await.unwrap_err();
        assert_eq!(isolate(async { is_isolated() }).await.ok(), Some(true));
        // A task that an isolated future starts is not isolated itself.
        let inner = isolate(async { tokio::spawn(async { is_isolated() }).await.ok() });
        assert_eq!(inner.await.ok().flatten(), Some(false));
    }
}
