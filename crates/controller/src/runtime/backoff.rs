//! Exponential backoff between attempts.

use std::time::Duration;

use tokio::time::Instant;

/// The share of a delay by which jitter shortens or prolongs it.
const JITTER: f64 = 0.2;

/// Delays that double from `first` to `max`, with jitter.
///
/// It starts over after an attempt that lasted at least `max`; callers need not report success.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
    /// When the last delay ended and the last attempt began.
    attempt_at: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Backoff { first, max, next: first, attempt_at: None }
    }

    /// For watches: an API server that is back is noticed within seconds.
    pub(crate) fn watch() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(5))
    }

    /// The delay before the next attempt.
    pub(crate) fn delay(&mut self) -> Duration {
        let now = Instant::now();
        if self.attempt_at.is_some_and(|attempt_at| now.saturating_duration_since(attempt_at) >= self.max) {
            self.next = self.first;
        }
        let jitter = 1.0 - JITTER + 2.0 * JITTER * fastrand::f64();
        let delay = self.next.mul_f64(jitter).min(self.max);
        self.next = (self.next * 2).min(self.max);
        self.attempt_at = Some(now + delay);
        delay
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    /// A watcher calls this at the start of each attempt, also of one that fails, so it must not start over.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use kube::runtime::utils::Backoff as _;

    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(10);

    fn is_near(delay: Duration, base: Duration) -> bool {
        (base.mul_f64(1.0 - JITTER)..=base.mul_f64(1.0 + JITTER).min(MAX)).contains(&delay)
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_max_despite_reset() {
        let mut backoff = Backoff::new(FIRST, MAX);
        for base in [1, 2, 4, 8, 10, 10] {
            backoff.reset();
            let delay = backoff.delay();
            assert!(is_near(delay, Duration::from_secs(base)), "{delay:?} for {base} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn starts_over_after_a_long_attempt() {
        let mut backoff = Backoff::new(FIRST, MAX);
        let reached = backoff.by_ref().nth(9).unwrap();
        assert!(is_near(reached, MAX), "{reached:?}");
        tokio::time::advance(reached + MAX.mul_f64(0.99)).await;
        let delay = backoff.delay();
        assert!(is_near(delay, MAX), "{delay:?}");
        tokio::time::advance(delay + MAX).await;
        let delay = backoff.delay();
        assert!(is_near(delay, FIRST), "{delay:?}");
    }
}
