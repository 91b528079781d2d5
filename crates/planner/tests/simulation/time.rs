//! Simulated time.

use jiff::{SignedDuration, Timestamp};

pub(crate) const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// The longest backoff after a Machine failed.
pub(crate) const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
pub(crate) const SHUTDOWN_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// 2026-11-16T12:00:00Z.
const START: Timestamp = Timestamp::constant(1_794_830_400, 0);

/// Seconds since the start of the simulation. Small, because there are millions of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seconds(pub(crate) i16);

impl Seconds {
    pub(crate) const ZERO: Seconds = Seconds(0);

    pub(crate) fn timestamp(self) -> Timestamp {
        START + SignedDuration::from_secs(self.0.into())
    }

    /// Rounded up: an alarm never rings early.
    pub(crate) fn from_timestamp(at: Timestamp) -> Self {
        let elapsed = at.duration_since(START);
        let rounded_up = elapsed.as_secs() + i64::from(elapsed.subsec_nanos() > 0);
        Seconds(rounded_up.try_into().expect("a time within the simulation"))
    }

    /// Relative to another time.
    pub(crate) fn since(self, origin: Seconds) -> Self {
        Seconds(self.0 - origin.0)
    }
}

impl std::ops::Add<SignedDuration> for Seconds {
    type Output = Seconds;

    fn add(self, duration: SignedDuration) -> Seconds {
        Seconds::from_timestamp(self.timestamp() + duration)
    }
}
