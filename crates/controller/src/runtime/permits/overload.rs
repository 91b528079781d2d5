//! What an overloaded API server allows: after a rejection no write is sent until the time that it requested, and then few
//! ordinary ones, more with each that succeeds. Otherwise all that wait would be sent together and be rejected again.

use std::time::Duration;

use tokio::time::Instant;

/// Limit of a pause. API priority and fairness requests up to 32 s; more would be the mistake of a proxy.
pub(super) const MAX_PAUSE: Duration = Duration::from_mins(1);

pub(super) struct Overload {
    paused_until: Option<Instant>,
    /// How many ordinary writes may be in flight.
    width: usize,
    max_width: usize,
}

impl Overload {
    pub(super) fn new(max_width: usize) -> Self {
        Overload { paused_until: None, width: max_width, max_width }
    }

    /// Records a rejection. Returns the end of the pause if that is later than before.
    pub(super) fn rejected(&mut self, retry_after: Duration, in_flight: usize, now: Instant) -> Option<Instant> {
        // Writes that were in flight together are rejected together, which counts once.
        if self.paused_until(now).is_none() {
            self.width = (self.width.min(in_flight) / 2).max(1);
        }
        let until = now + retry_after.min(MAX_PAUSE);
        let is_later = self.paused_until.is_none_or(|before| until > before);
        if is_later {
            self.paused_until = Some(until);
        }
        is_later.then_some(until)
    }

    /// Records the end of a write, whose response came before its permit was returned.
    pub(super) fn ended(&mut self, now: Instant) {
        if self.paused_until(now).is_none() {
            self.width = (self.width + 1).min(self.max_width);
        }
    }

    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| now < *until)
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_are_paused_then_few_then_all() {
        let mut overload = Overload::new(32);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(overload.rejected(2 * second, 20, start), Some(start + 2 * second));
        assert_eq!(overload.rejected(second, 19, start), None, "an earlier end does not shorten the pause");
        assert_eq!(overload.rejected(3 * second, 18, start), Some(start + 3 * second));
        overload.ended(start + second);
        assert_eq!(overload.width(), 10, "rejections of one pause count once, and a write that ends in it does not");
        assert!(overload.paused_until(start + 2 * second).is_some());
        let end = start + 3 * second;
        assert_eq!(overload.paused_until(end), None);
        (0..100).for_each(|_| overload.ended(end));
        assert_eq!(overload.width(), 32);
        overload.rejected(second, 0, end);
        assert_eq!(overload.width(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn pause_is_bounded() {
        let mut overload = Overload::new(1);
        let now = Instant::now();
        assert_eq!(overload.rejected(Duration::from_secs(u64::from(u32::MAX)), 1, now), Some(now + MAX_PAUSE));
    }
}
