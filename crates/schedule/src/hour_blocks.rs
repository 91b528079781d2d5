//! Schedules of whole local hours: days and hours, or cron without a duration.

use crate::calendar::{DaySet, Wall};
use crate::hours::Hours;
use crate::zone::{WIDEST_OFFSET, Zone, horizon};

/// Open while the wall clock shows one of `hours` on one of `days`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HourBlocks {
    days: DaySet,
    hours: Hours,
}

impl HourBlocks {
    pub(crate) fn new(days: DaySet, hours: Hours) -> Self {
        Self { days, hours }
    }

    pub(crate) fn is_open(self, zone: &Zone, at: i64) -> bool {
        self.lists(zone.reading(at))
    }

    /// Whether the schedule is open at `at`, and the next instant at which that changes.
    pub(crate) fn state(self, zone: &Zone, at: i64) -> (bool, Option<i64>) {
        let open = self.is_open(zone, at);
        let change = if open {
            first_instant(zone, at, |from| self.first_closed(from))
        } else {
            first_instant(zone, at, |from| self.first_open(from))
        };
        (open, change)
    }

    fn lists(self, wall: Wall) -> bool {
        self.hours.contains(wall.hour()) && self.days.lists(wall.day())
    }

    /// The first listed reading at or after `from`.
    fn first_open(self, from: Wall) -> Option<Wall> {
        let today = from.day();
        if let Some(hour) = self.hours.first_from(from.hour())
            && self.days.lists(today)
        {
            return Some(from.max(Wall::at_hour(today, hour)));
        }
        let hour = self.hours.first_from(0)?;
        self.days.first_listed(today.next()).map(|day| Wall::at_hour(day, hour))
    }

    /// The first reading at or after `from` that is not listed.
    fn first_closed(self, from: Wall) -> Option<Wall> {
        let (today, tomorrow) = (from.day(), from.day().next());
        let closed = self.hours.inverse();
        if !self.days.lists(today) {
            return Some(from);
        }
        if let Some(hour) = closed.first_from(from.hour()) {
            return Some(from.max(Wall::at_hour(today, hour)));
        }
        match closed.first_from(0) {
            Some(hour) if self.days.lists(tomorrow) => Some(Wall::at_hour(tomorrow, hour)),
            Some(_) => Some(Wall::at_hour(tomorrow, 0)),
            None => self.days.first_unlisted(tomorrow).map(|day| Wall::at_hour(day, 0)),
        }
    }
}

/// The first instant at or after `at` at which the wall clock shows a matching reading.
///
/// `first_match` returns the first matching reading at or after its argument. Within a stretch of constant offset that is
/// the result. If the stretch contains no match, the search continues in the next stretch, or in the earliest one that can
/// contain the next match.
fn first_instant(zone: &Zone, at: i64, first_match: impl Fn(Wall) -> Option<Wall>) -> Option<i64> {
    let horizon = horizon(at);
    let mut at = at;
    while at <= horizon {
        let stretch = zone.stretch(at);
        let found = first_match(Wall(at + stretch.offset)).map(|wall| wall.0 - stretch.offset);
        let Some(end) = stretch.end else { return found };
        if let Some(found) = found.filter(|&found| found < end) {
            return Some(found);
        }
        let next = first_match(Wall(end - WIDEST_OFFSET))?;
        at = end.max(next.0 - WIDEST_OFFSET);
    }
    None
}
