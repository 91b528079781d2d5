//! Schedules with a cron expression and a duration: each firing opens a window.
//!
//! A firing happens at the first instant at which the wall clock has reached its reading: at the end of the gap if the
//! reading is skipped, and once if it is repeated. By a given instant, the expression has fired for every reading up to
//! [`Zone::latest_reading`], which never decreases.

use crate::calendar::{DAY, DaySet, MINUTE, Wall};
use crate::cron::Cron;
use crate::hours::Hours;
use crate::zone::{BEGINNING, RULES_ONLY, Zone, horizon};

/// Open for `length` seconds from each firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Firings {
    days: DaySet,
    hours: Hours,
    minutes: u64,
    length: i64,
    reach: Reach,
}

/// How far consecutive windows merge, as long as no transition of the time zone intervenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Every listed day contains a time at which the schedule is closed.
    WithinADay,
    /// Consecutive listed days form one window.
    AcrossDays,
    /// Every day is listed, and no transition from this instant on interrupts the window.
    Forever { from: i64 },
}

/// A window, together with any transition that sets the wall clock back during it, spans at most this many days.
const DAYS_BACK: i64 = 4;

impl Firings {
    pub(crate) fn new(cron: Cron, length: i64, zone: &Zone) -> Self {
        let Cron { minutes, hours, days } = cron;
        let mut firings = Self { days, hours, minutes, length, reach: Reach::WithinADay };
        firings.reach = firings.reach_in(zone);
        firings
    }

    pub(crate) fn is_open(&self, zone: &Zone, at: i64) -> bool {
        self.last_firing(zone, at).is_some_and(|firing| at < firing + self.length)
    }

    /// Whether the schedule is open at `at`, and the next instant at which that changes.
    pub(crate) fn state(&self, zone: &Zone, at: i64) -> (bool, Option<i64>) {
        match self.last_firing(zone, at) {
            Some(firing) if at < firing + self.length => (true, self.close_of_window(zone, firing)),
            Some(_) | None => (false, self.next_firing(zone, at)),
        }
    }

    fn next_firing(&self, zone: &Zone, at: i64) -> Option<i64> {
        let reading = self.first_reading(Wall(zone.latest_reading(at).0 + 1))?;
        Some(zone.first_reaching(reading))
    }

    /// The latest firing up to `at`, if it is recent enough for its window to include `at`.
    fn last_firing(&self, zone: &Zone, at: i64) -> Option<i64> {
        let reading = self.last_reading(zone.latest_reading(at))?;
        Some(zone.first_reaching(reading))
    }

    /// The end of the window that contains `firing`.
    fn close_of_window(&self, zone: &Zone, firing: i64) -> Option<i64> {
        let horizon = horizon(firing);
        let mut firing = firing;
        while firing <= horizon {
            if matches!(self.reach, Reach::Forever { from } if from <= firing) {
                return None;
            }
            firing = self.last_certain_firing(zone, firing)?;
            let close = firing + self.length;
            match self.last_firing(zone, close) {
                Some(next) if next > firing => firing = next,
                Some(_) | None => return Some(close),
            }
        }
        None
    }

    /// The latest firing before the next transition that certainly belongs to the same window as `firing`, or `None` if
    /// the window never ends.
    fn last_certain_firing(&self, zone: &Zone, firing: i64) -> Option<i64> {
        let stretch = zone.stretch(firing);
        let reading = Wall(firing + stretch.offset);
        let today = reading.day();
        if !self.days.lists(today) {
            // A skipped firing happens at the end of the gap, which may be on another day.
            return Some(firing);
        }
        if self.reach == Reach::WithinADay {
            let end = stretch.end.map(|end| Wall(end + stretch.offset));
            return Some(self.last_joined(reading, end).0 - stretch.offset);
        }
        let end_of_run = self.days.first_unlisted(today).map(|day| Wall::on(day, 0).0 - stretch.offset);
        let limit = end_of_run.into_iter().chain(stretch.end).min()?;
        Some(self.last_firing(zone, limit - 1).map_or(firing, |last| last.max(firing)))
    }

    /// The last reading of the same day, before `end`, that follows `reading` without a pause longer than a window.
    fn last_joined(&self, reading: Wall, end: Option<Wall>) -> Wall {
        let mut joined = reading;
        while let Some(minute) = self.first_minute(joined.second_of_day() / MINUTE + 1) {
            let next = Wall::on(reading.day(), minute * MINUTE);
            if next.0 - joined.0 > self.length || end.is_some_and(|end| end <= next) {
                break;
            }
            joined = next;
        }
        joined
    }

    /// The first reading at or after `from` for which the expression fires.
    fn first_reading(&self, from: Wall) -> Option<Wall> {
        let minute = (from.second_of_day() + MINUTE - 1) / MINUTE;
        if self.days.lists(from.day())
            && let Some(minute) = self.first_minute(minute)
        {
            return Some(Wall::on(from.day(), minute * MINUTE));
        }
        let day = self.days.first_listed(from.day().next())?;
        self.first_minute(0).map(|minute| Wall::on(day, minute * MINUTE))
    }

    /// The last reading up to `until` for which the expression fires, within the last [`DAYS_BACK`] days.
    fn last_reading(&self, until: Wall) -> Option<Wall> {
        let mut day = until.day();
        let mut minute = until.second_of_day() / MINUTE;
        for _ in 0..=DAYS_BACK {
            if self.days.lists(day)
                && let Some(minute) = self.last_minute(minute)
            {
                return Some(Wall::on(day, minute * MINUTE));
            }
            day = day.previous();
            minute = DAY / MINUTE - 1;
        }
        None
    }

    /// The first minute of the day at or after `from` at which the expression fires.
    fn first_minute(&self, from: i64) -> Option<i64> {
        let hour = u32::try_from(from / 60).ok().filter(|&hour| hour < 24)?;
        let later = self.minutes >> (from % 60) << (from % 60);
        if self.hours.contains(hour) && later != 0 {
            return Some(i64::from(hour * 60 + later.trailing_zeros()));
        }
        let hour = self.hours.first_from(hour + 1)?;
        Some(i64::from(hour * 60 + self.minutes.trailing_zeros()))
    }

    /// The last minute of the day up to `until` at which the expression fires.
    fn last_minute(&self, until: i64) -> Option<i64> {
        let hour = u32::try_from(until / 60).ok()?;
        let earlier = self.minutes & (u64::MAX >> (63 - until % 60));
        if self.hours.contains(hour)
            && let Some(minute) = earlier.checked_ilog2()
        {
            return Some(i64::from(hour * 60 + minute));
        }
        let hour = self.hours.last_before(hour)?;
        self.minutes.checked_ilog2().map(|minute| i64::from(hour * 60 + minute))
    }

    fn reach_in(&self, zone: &Zone) -> Reach {
        let Some(pause) = self.longest_pause().filter(|&pause| pause <= self.length) else {
            return Reach::WithinADay;
        };
        if !self.days.is_every() {
            return Reach::AcrossDays;
        }
        // Setting the wall clock back lengthens a pause by the same amount.
        let spare = self.length - pause;
        match last_interruption(zone, spare) {
            // The interruption recurs every year.
            Some(last) if last >= RULES_ONLY => Reach::AcrossDays,
            Some(last) => Reach::Forever { from: last + DAYS_BACK * DAY },
            None => Reach::Forever { from: BEGINNING },
        }
    }

    /// The longest pause between two firings on consecutive listed days.
    fn longest_pause(&self) -> Option<i64> {
        let first = self.first_minute(0)?;
        let tomorrow = first + DAY / MINUTE;
        let of_today = std::iter::successors(Some(first), |&minute| self.first_minute(minute + 1));
        let of_today_from_the_second = of_today.clone().skip(1);
        of_today.zip(of_today_from_the_second.chain([tomorrow])).map(|(one, next)| (next - one) * MINUTE).max()
    }
}

/// The last transition that, together with those shortly before it, sets the wall clock back by more than `spare` seconds.
///
/// Transitions that follow a yearly rule are represented by those of the first years after [`RULES_ONLY`].
fn last_interruption(zone: &Zone, spare: i64) -> Option<i64> {
    let years_of_rules = RULES_ONLY + 4 * 366 * DAY;
    let mut offset = zone.reading(BEGINNING).0 - BEGINNING;
    let mut recent: Vec<(i64, i64)> = Vec::new();
    let mut last = None;
    for transition in zone.transitions_after(BEGINNING).take_while(|transition| transition.at < years_of_rules) {
        recent.retain(|(at, _)| transition.at - at <= DAYS_BACK * DAY);
        recent.push((transition.at, (offset - transition.offset).max(0)));
        if recent.iter().map(|(_, by)| by).sum::<i64>() > spare {
            last = Some(transition.at);
        }
        offset = transition.offset;
    }
    last
}
