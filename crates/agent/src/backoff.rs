//! How long to wait before the next try.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

/// Doubles from a tenth of a second up to what the caller thinks fit.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { next: FIRST }
    }

    /// At least half of it, so that a thousand agents whose API server is back do not come all at once.
    pub(crate) fn next(&mut self, most: Duration) -> Duration {
        let whole = self.next.min(most);
        self.next = (whole * 2).min(most);
        let dice = (RandomState::new().hash_one(0_u8) >> 48) as u16;
        whole / 2 + whole / 2 * u32::from(dice) / u32::from(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_what_fits_and_comes_back() {
        let (mut backoff, second) = (Backoff::new(), Duration::from_secs(1));
        for whole in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
            let pause = backoff.next(second);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
        }
        let later = (0..10).map(|_| backoff.next(Duration::from_secs(30))).last().unwrap();
        assert!(later >= Duration::from_secs(15));
        assert!(backoff.next(second) <= second);
    }
}
