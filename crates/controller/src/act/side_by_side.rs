//! Things that are done side by side, of which one is more urgent than the others.

use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the first may go ahead of the others: too short to be felt by an owner who waits for the machine.
const HEAD_START: Duration = Duration::from_millis(100);

/// Sees all of them through, and gives what came of each.
///
/// The first has a head start, since requests that reach a small API server together hold each other up. One that hangs
/// holds nobody up for longer than that.
pub(super) async fn side_by_side<T>(all: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let first_is_through = &CancellationToken::new();
    let all = all.into_iter().enumerate().map(|(position, one)| async move {
        if position > 0 {
            let _ = timeout(HEAD_START, first_is_through.cancelled()).await;
        }
        let outcome = one.await;
        if position == 0 {
            first_is_through.cancel();
        }
        outcome
    });
    join_all(all).await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// When each of them began, in milliseconds, if the first takes so long.
    async fn begun(first: Duration) -> Vec<u128> {
        let start = Instant::now();
        let one = |takes: Duration| {
            async move {
                let begun = start.elapsed().as_millis();
                sleep(takes).await;
                begun
            }
            .boxed()
        };
        side_by_side(vec![one(first), one(Duration::ZERO), one(Duration::ZERO)]).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_begin_when_the_first_is_through() {
        assert_eq!(begun(Duration::from_millis(40)).await, [0, 40, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_that_takes_long_holds_the_others_up_for_a_moment() {
        assert_eq!(begun(Duration::from_mins(1)).await, [0, 100, 100]);
    }
}
