//! A parsed schedule, and the questions it answers.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::ScheduleErrors;
use crate::firings::Firings;
use crate::hour_blocks::HourBlocks;
use crate::overrides::Overrides;
use crate::parse;
use crate::source::Source;
use crate::windows::{Window, Windows};
use crate::zone::Zone;

/// When something is open, for all of time.
///
/// Two schedules are equal if the same sets were read from them: `0 9-17 * * 1-5` equals `mon-fri` with `9-17`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) zone: Zone,
    pub(crate) base: Base,
    pub(crate) overrides: Overrides,
}

/// What is open where no override says anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    HourBlocks(HourBlocks),
    Firings(Firings),
}

impl Schedule {
    /// Reads what a user wrote, and reports everything that is wrong with it.
    pub fn parse(source: &Source<'_>) -> Result<Self, ScheduleErrors> {
        parse::schedule(source)
    }

    /// Whether the schedule is open at an instant.
    pub fn is_open(&self, at: Timestamp) -> bool {
        match self.overrides.at(at) {
            Some(span) => span.active,
            None => self.base.is_open(&self.zone, whole_second(at)),
        }
    }

    /// The first instant after `after` at which [`Self::is_open`] differs from what it is at `after`; `None` if it never
    /// changes again.
    pub fn next_change(&self, after: Timestamp) -> Option<Timestamp> {
        let mut base = self.steady_base(after);
        let mut steady = self.with_overrides(after, base);
        let open = steady.open;
        loop {
            let at = steady.until?;
            if base.until.is_some_and(|until| until <= at) {
                // Cheaper than to find out how long the base schedule stays as it is, which may not be needed.
                if self.is_open(at) != open {
                    return Some(at);
                }
                base = self.steady_base(at);
            }
            steady = self.with_overrides(at, base);
            if steady.open != open {
                return Some(at);
            }
        }
    }

    /// The windows that lie in the span from `from` to just before `until`, in order, clipped to the span.
    ///
    /// They are disjoint and maximal: between two of them the schedule is closed. Each is computed when it is asked for.
    pub fn windows(&self, from: Timestamp, until: Timestamp) -> impl Iterator<Item = Window> + '_ {
        Windows::new(self, from, until)
    }

    /// The next opening after `after`: of the window after the current one, if one is open.
    pub fn next_opening(&self, after: Timestamp) -> Option<Timestamp> {
        let change = self.next_change(after)?;
        if self.is_open(after) { self.next_change(change) } else { Some(change) }
    }

    /// When the window that is open at `at` closes; `None` if none is open, or if it never closes.
    pub fn current_close(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) { self.next_change(at) } else { None }
    }

    /// The time zone whose wall clock the schedule goes by.
    pub fn time_zone(&self) -> &TimeZone {
        self.zone.time_zone()
    }

    fn steady_base(&self, at: Timestamp) -> Steady {
        let second = whole_second(at);
        let (open, change) = self.base.steady(&self.zone, second);
        debug_assert!(change.is_none_or(|change| change > second), "a change after {at} at {change:?}");
        Steady { open, until: change.and_then(|change| Timestamp::from_second(change).ok()) }
    }

    /// What holds at an instant, given what the base schedule says there.
    fn with_overrides(&self, at: Timestamp, base: Steady) -> Steady {
        match self.overrides.at(at) {
            Some(span) => Steady { open: span.active, until: span.end() },
            None => {
                Steady { open: base.open, until: base.until.into_iter().chain(self.overrides.next_start(at)).min() }
            }
        }
    }
}

/// An answer, and how long it certainly stays the same.
#[derive(Clone, Copy)]
struct Steady {
    open: bool,
    /// `None`: for ever.
    until: Option<Timestamp>,
}

impl Base {
    fn is_open(&self, zone: &Zone, at: i64) -> bool {
        match self {
            Self::HourBlocks(blocks) => blocks.is_open(zone, at),
            Self::Firings(firings) => firings.is_open(zone, at),
        }
    }

    /// Whether it is open, and the first instant after `at` when that is no longer so.
    fn steady(&self, zone: &Zone, at: i64) -> (bool, Option<i64>) {
        match self {
            Self::HourBlocks(blocks) => blocks.steady(zone, at),
            Self::Firings(firings) => firings.steady(zone, at),
        }
    }
}

/// The second that an instant is in: base schedules change at whole seconds only.
fn whole_second(at: Timestamp) -> i64 {
    at.as_second() - i64::from(at.subsec_nanosecond() < 0)
}
