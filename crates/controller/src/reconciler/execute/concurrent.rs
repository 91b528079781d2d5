//! Concurrent execution in which the first future gets a head start.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the first future may run before the others start.
const HEAD_START: Duration = Duration::from_millis(100);

/// Runs all futures to completion and returns their results.
///
/// Requests that reach a small API server together delay each other, so the others start when the first is done, or after
/// the head start if it hangs.
pub(super) async fn concurrently<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let first_done = &CancellationToken::new();
    let futures = futures.into_iter().enumerate().map(|(position, future)| async move {
        if position > 0 {
            let _ = timeout(HEAD_START, first_done.cancelled()).await;
        }
        let result = future.await;
        if position == 0 {
            first_done.cancel();
        }
        result
    });
    join_all(futures).await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// When each future started, in milliseconds, if the first takes `first`.
    async fn start_times(first: Duration) -> Vec<u128> {
        let start = Instant::now();
        let future = |takes: Duration| {
            async move {
                let started = start.elapsed().as_millis();
                sleep(takes).await;
                started
            }
            .boxed()
        };
        concurrently(vec![future(first), future(Duration::ZERO), future(Duration::ZERO)]).await
    }

    #[tokio::test(start_paused = true)]
    async fn others_start_when_the_first_is_done() {
        assert_eq!(start_times(Duration::from_millis(40)).await, [0, 40, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_first_delays_the_others_only_briefly() {
        assert_eq!(start_times(Duration::from_mins(1)).await, [0, 100, 100]);
    }
}
