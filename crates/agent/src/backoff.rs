//! Exponential backoff with jitter.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use kube::runtime::utils::Backoff as KubeBackoff;

const MIN_DELAY: Duration = Duration::from_millis(100);
/// A watch error after this long without one starts a new series.
const WATCH_RESET: Duration = Duration::from_secs(30);

/// Delays that double from 100 ms to a maximum. The random half of each delay spreads the agents of a fleet when their API
/// server returns.
#[derive(Debug)]
pub(crate) struct Backoff {
    delays: ExponentialBackoff,
    max: Duration,
}

impl Backoff {
    pub(crate) fn up_to(max: Duration) -> Self {
        // `backon` adds up to the delay itself as jitter, so it counts in halves.
        let halves = ExponentialBuilder::new().with_min_delay(MIN_DELAY / 2).with_max_delay(max / 2);
        Backoff { delays: halves.without_max_times().with_jitter().build(), max }
    }

    pub(crate) fn next_delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.max)
    }

    pub(crate) fn reset(&mut self) {
        *self = Backoff::up_to(self.max);
    }
}

/// The backoff of a watch. kube resets a backoff when an attempt begins, also one that fails later; this one resets itself
/// after a while without errors instead.
pub(crate) struct WatchBackoff {
    backoff: Backoff,
    last_error: Option<Instant>,
}

impl WatchBackoff {
    pub(crate) fn up_to(max: Duration) -> Self {
        WatchBackoff { backoff: Backoff::up_to(max), last_error: None }
    }

    fn next_delay(&mut self, now: Instant) -> Duration {
        if self.last_error.replace(now).is_some_and(|last| now.duration_since(last) > WATCH_RESET) {
            self.backoff.reset();
        }
        self.backoff.next_delay()
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_delay(Instant::now()))
    }
}

impl KubeBackoff for WatchBackoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_to_the_maximum_and_reset() {
        let mut backoff = Backoff::up_to(SECOND);
        for full in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let delay = backoff.next_delay();
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
        let mut backoff = Backoff::up_to(30 * SECOND);
        let last = (0..16).map(|_| backoff.next_delay()).last().unwrap();
        assert!(last >= 15 * SECOND && last <= 30 * SECOND, "{last:?}");
        backoff.reset();
        assert!(backoff.next_delay() <= MIN_DELAY);
    }

    #[test]
    fn watch_backoff_grows_although_kube_resets_it() {
        let max = 5 * SECOND;
        let mut backoff = WatchBackoff::up_to(max);
        let delays: Vec<Duration> = (0..20)
            .map(|_| {
                KubeBackoff::reset(&mut backoff);
                backoff.next().unwrap()
            })
            .collect();
        assert!(delays[0] <= Duration::from_millis(100), "{delays:?}");
        assert!(delays[8..].iter().all(|delay| *delay >= max / 2 && *delay <= max), "{delays:?}");
    }

    #[test]
    fn watch_backoff_resets_after_a_while_without_errors() {
        let (mut backoff, now) = (WatchBackoff::up_to(5 * SECOND), Instant::now());
        assert!((0..20).map(|_| backoff.next_delay(now)).last().unwrap() > MIN_DELAY);
        assert!(backoff.next_delay(now + WATCH_RESET) > MIN_DELAY);
        assert!(backoff.next_delay(now + 2 * WATCH_RESET + SECOND) <= MIN_DELAY);
    }
}
