//! Limits how often something happens.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A token bucket: `burst` immediately, then `per_second`.
#[derive(Debug)]
pub(crate) struct RateLimit {
    burst: f64,
    per_second: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl RateLimit {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let (burst, per_second) = (f64::from(burst), f64::from(per_second));
        RateLimit { burst, per_second, tokens: burst, refilled_at: Instant::now() }
    }

    /// Takes tokens, also more than there are, and returns how long to wait until that is balanced.
    pub(crate) fn take(&mut self, tokens: u32) -> Duration {
        let now = Instant::now();
        let refilled = now.saturating_duration_since(self.refilled_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + refilled).min(self.burst) - f64::from(tokens);
        self.refilled_at = now;
        Duration::from_secs_f64((-self.tokens / self.per_second).max(0.0))
    }

    /// Takes tokens if there are enough, and otherwise returns how long to wait until there are.
    pub(crate) fn take_at_most(&mut self, tokens: u32) -> Duration {
        let wait = self.take(tokens);
        if wait > Duration::ZERO {
            self.tokens += f64::from(tokens);
        }
        wait
    }
}

/// Allows something once per interval for each key.
#[derive(Debug)]
pub(crate) struct OncePer<K> {
    interval: Duration,
    last: Mutex<Last<K>>,
}

#[derive(Debug)]
struct Last<K> {
    at: HashMap<K, Instant>,
    swept_at: Instant,
}

impl<K: Clone + Eq + Hash> OncePer<K> {
    pub(crate) fn new(interval: Duration) -> Self {
        OncePer { interval, last: Mutex::new(Last { at: HashMap::new(), swept_at: Instant::now() }) }
    }

    pub(crate) fn allows(&self, key: &K) -> bool {
        let now = Instant::now();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < self.interval;
        let mut last = self.last.lock();
        // Only keys of the last two intervals are kept.
        if !is_recent(&last.swept_at) {
            last.at.retain(|_, at| is_recent(at));
            last.swept_at = now;
        }
        let is_allowed = !last.at.get(key).is_some_and(is_recent);
        if is_allowed {
            last.at.insert(key.clone(), now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rate_is_limited_after_the_burst() {
        let mut limit = RateLimit::new(3, 2);
        assert_eq!([1, 1, 1].map(|it| limit.take(it)), [Duration::ZERO; 3]);
        assert_eq!(limit.take(1), Duration::from_millis(500));
        assert_eq!(limit.take(3), Duration::from_secs(2));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(limit.take(3), Duration::ZERO, "the bucket is full again, and not more than full");
        assert_eq!(limit.take(1), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_is_allowed_once_per_interval() {
        let limit = OncePer::new(Duration::from_mins(1));
        assert_eq!(["a", "b", "a"].map(|it| limit.allows(&it)), [true, true, false]);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(limit.allows(&"a"));
        assert_eq!(limit.last.lock().at.len(), 1, "an old key is kept");
    }
}
