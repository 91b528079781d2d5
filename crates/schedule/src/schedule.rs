//! A parsed schedule.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::InstantError;
use crate::firings::Firings;
use crate::hour_blocks::HourBlocks;
use crate::instant::InstantOrDate;
use crate::overrides::Overrides;
use crate::zone::Zone;

/// A valid schedule in its time zone. Immutable, and cheap to query.
///
/// Two schedules are equal if they were parsed into the same days, hours and overrides, however they were written:
/// `0 9-17 * * 1-5` equals `mon-fri` with `9-17`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) zone: Zone,
    pub(crate) base: Base,
    pub(crate) overrides: Overrides,
}

/// The schedule where no override applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    HourBlocks(HourBlocks),
    Firings(Firings),
}

impl Schedule {
    /// Returns whether the schedule is open at `at`.
    pub fn is_open(&self, at: Timestamp) -> bool {
        match self.overrides.at(at) {
            Some(span) => span.active,
            None => self.base.is_open(&self.zone, whole_second(at)),
        }
    }

    /// Returns the first instant after `after` at which [`Self::is_open`] differs from its value at `after`, or `None` if it
    /// never changes again.
    pub fn next_change(&self, after: Timestamp) -> Option<Timestamp> {
        let mut base = self.base_state(after);
        let mut state = self.with_overrides(after, base);
        let open = state.open;
        loop {
            let at = state.until?;
            if base.until.is_some_and(|until| until <= at) {
                // Cheaper than base_state, which also searches for the next change of the base schedule.
                if self.is_open(at) != open {
                    return Some(at);
                }
                base = self.base_state(at);
            }
            state = self.with_overrides(at, base);
            if state.open != open {
                return Some(at);
            }
        }
    }

    /// Returns the start of the next window after `after`, or `None` if there is none. If the schedule is open at `after`, that
    /// is the window after the current one.
    pub fn next_opening(&self, after: Timestamp) -> Option<Timestamp> {
        let change = self.next_change(after)?;
        if self.is_open(after) { self.next_change(change) } else { Some(change) }
    }

    /// Returns the end of the window that is open at `at`, or `None` if the schedule is closed or never closes again.
    pub fn current_close(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) { self.next_change(at) } else { None }
    }

    /// Returns the time zone in which the schedule is evaluated.
    pub fn time_zone(&self) -> &TimeZone {
        self.zone.time_zone()
    }

    /// Parses an RFC 3339 timestamp or a local date, with the syntax and meaning of `from` and `until` of an override: a local
    /// date is the first instant at which the wall clock of the schedule's time zone has reached its 00:00.
    pub fn parse_instant(&self, text: &str) -> Result<Timestamp, InstantError> {
        InstantOrDate::parse(text).map(|parsed| parsed.resolve(&self.zone)).map_err(|fault| fault.in_text(text))
    }

    fn base_state(&self, at: Timestamp) -> State {
        let second = whole_second(at);
        let (open, change) = self.base.state(&self.zone, second);
        debug_assert!(change.is_none_or(|change| change > second), "a change after {at} at {change:?}");
        State { open, until: change.and_then(|change| Timestamp::from_second(change).ok()) }
    }

    /// Applies the overrides to the state of the base schedule at `at`.
    fn with_overrides(&self, at: Timestamp, base: State) -> State {
        match self.overrides.at(at) {
            Some(span) => State { open: span.active, until: span.end() },
            None => State { open: base.open, until: base.until.into_iter().chain(self.overrides.next_start(at)).min() },
        }
    }
}

/// Whether a schedule is open, and until when that is certain not to change.
#[derive(Clone, Copy)]
struct State {
    open: bool,
    /// `None`: never changes.
    until: Option<Timestamp>,
}

impl Base {
    fn is_open(&self, zone: &Zone, at: i64) -> bool {
        match self {
            Self::HourBlocks(blocks) => blocks.is_open(zone, at),
            Self::Firings(firings) => firings.is_open(zone, at),
        }
    }

    /// Whether the schedule is open at `at`, and the next instant at which that changes.
    fn state(&self, zone: &Zone, at: i64) -> (bool, Option<i64>) {
        match self {
            Self::HourBlocks(blocks) => blocks.state(zone, at),
            Self::Firings(firings) => firings.state(zone, at),
        }
    }
}

/// Rounds down to the second: base schedules change only at whole seconds.
fn whole_second(at: Timestamp) -> i64 {
    at.as_second() - i64::from(at.subsec_nanosecond() < 0)
}
