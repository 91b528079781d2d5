//! What a schedule means, in the plainest words that can be run: the wall clock is watched minute by minute.
//!
//! Nothing here comes from the crate under test. From the time library it takes what a wall clock shows at an instant,
//! and the calendar.

#![allow(dead_code, reason = "each test binary uses its own part of the model")]
#![allow(clippy::unwrap_used, reason = "tests write valid schedules, and a panic is how a test fails")]

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// A schedule as a user writes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) days: Vec<String>,
    pub(crate) hours: Vec<String>,
    pub(crate) cron: Option<String>,
    pub(crate) duration: Option<String>,
    pub(crate) zone: String,
    pub(crate) overrides: Vec<(String, String, bool)>,
}

/// The wall clock of one place over some days, watched closely.
pub(crate) struct Watched {
    zone: TimeZone,
    ticks: Vec<Tick>,
    first_day: i64,
    days: Vec<CalendarDay>,
}

#[derive(Clone, Copy)]
pub(crate) struct Tick {
    pub(crate) at: i64,
    /// Seconds since the wall clock showed 1970-01-01T00:00.
    shown: i64,
}

#[derive(Clone, Copy)]
struct CalendarDay {
    month: usize,
    day: usize,
    weekday: usize,
}

const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

/// How often the clock is compared with real time; no two transitions of any zone are this close.
const GLANCE: i64 = 15 * MINUTE;

/// No clock has been turned back by more than a day, and no window is longer than one.
const WARM_UP: i64 = 5 * DAY / 2;

impl Watched {
    /// Watches from some days before `from`, so that what began earlier is known.
    pub(crate) fn new(zone: &TimeZone, from: i64, until: i64) -> Self {
        let mut ticks = Vec::new();
        let mut at = (from - WARM_UP).div_euclid(GLANCE) * GLANCE;
        let mut shown = show(zone, at);
        while at <= until {
            let shown_next = show(zone, at + GLANCE);
            if shown_next - shown == GLANCE {
                // The clock runs steadily: every minute of ours is a tick, and every minute of the wall clock, which
                // begins within ours where the offset has odd seconds.
                let odd = shown.rem_euclid(MINUTE);
                for into in (0..GLANCE).step_by(60) {
                    ticks.push(Tick { at: at + into, shown: shown + into });
                    if odd != 0 {
                        let into = into + MINUTE - odd;
                        ticks.push(Tick { at: at + into, shown: shown + into });
                    }
                }
            } else {
                ticks.extend((at..at + GLANCE).map(|at| Tick { at, shown: show(zone, at) }));
            }
            at += GLANCE;
            shown = shown_next;
        }
        let shown = || ticks.iter().map(|tick| tick.shown.div_euclid(DAY));
        let (first_day, last_day) = (shown().min().unwrap(), shown().max().unwrap());
        let days = (first_day..=last_day).map(calendar_day).collect();
        Self { zone: zone.clone(), ticks, first_day, days }
    }

    pub(crate) fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    fn day(&self, shown: i64) -> CalendarDay {
        self.days[index(shown.div_euclid(DAY) - self.first_day)]
    }
}

/// A schedule's meaning over the time that was watched.
pub(crate) struct Meaning<'a> {
    watched: &'a Watched,
    base: Base,
    /// Earlier entries first.
    overrides: Vec<(Timestamp, Timestamp, bool)>,
}

enum Base {
    /// Open in these hours of the days that match.
    Hours { days: DayChoice, hours: Vec<bool> },
    /// Open for so long from each of these instants.
    Firings { at: Vec<i64>, length: i64 },
}

/// Indexed as people count: January is 1, the first is 1, Sunday is 0.
struct DayChoice {
    months: Vec<bool>,
    month_days: Vec<bool>,
    weekdays: Vec<bool>,
    both: bool,
}

impl<'a> Meaning<'a> {
    pub(crate) fn new(written: &Written, watched: &'a Watched) -> Self {
        let base = match (&written.cron, &written.duration) {
            (None, _) => Base::Hours {
                days: DayChoice {
                    months: vec![true; 13],
                    month_days: vec![true; 32],
                    weekdays: around(&written.days, 7, |day| WEEKDAYS.iter().position(|name| *name == day).unwrap()),
                    both: true,
                },
                hours: around(&written.hours, 24, |hour| hour.parse().unwrap()),
            },
            (Some(cron), None) => {
                let [_, hours, ..] = fields(cron);
                Base::Hours { days: cron_days(cron), hours: cron_field(hours, 0, 23, &[]) }
            }
            (Some(cron), Some(duration)) => Base::Firings { at: firings(cron, watched), length: length(duration) },
        };
        let overrides = &written.overrides;
        let overrides = overrides
            .iter()
            .map(|(from, until, active)| (edge(from, watched), edge(until, watched), *active))
            .collect();
        Self { watched, base, overrides }
    }

    /// Whether the schedule is open at an instant that was watched.
    pub(crate) fn is_open(&self, at: Timestamp) -> bool {
        let second = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
        self.overridden(at)
            .unwrap_or_else(|| self.base_is_open(Tick { at: second, shown: show(&self.watched.zone, second) }))
    }

    /// Whether the schedule is open at a tick.
    pub(crate) fn is_open_at(&self, tick: Tick) -> bool {
        let overridden = if self.overrides.is_empty() { None } else { self.overridden(instant(tick.at)) };
        overridden.unwrap_or_else(|| self.base_is_open(tick))
    }

    fn overridden(&self, at: Timestamp) -> Option<bool> {
        let covers = |(from, until, _): &&(Timestamp, Timestamp, bool)| *from <= at && at < *until;
        self.overrides.iter().rev().find(covers).map(|(_, _, active)| *active)
    }

    fn base_is_open(&self, tick: Tick) -> bool {
        match &self.base {
            Base::Hours { days, hours } => {
                hours[index(tick.shown.rem_euclid(DAY) / 3600)] && days.contain(self.watched.day(tick.shown))
            }
            Base::Firings { at, length } => {
                let earlier = &at[..at.partition_point(|firing| *firing <= tick.at)];
                earlier.last().is_some_and(|last| tick.at < last + length)
            }
        }
    }
}

impl DayChoice {
    fn contain(&self, day: CalendarDay) -> bool {
        let by_date = self.month_days[day.day];
        let by_weekday = self.weekdays[day.weekday];
        self.months[day.month] && if self.both { by_date && by_weekday } else { by_date || by_weekday }
    }
}

/// The instants at which an expression fires: when the clock first shows the minute, or, if it skips the minute, when it
/// has just skipped it.
fn firings(cron: &str, watched: &Watched) -> Vec<i64> {
    let [minutes, hours, ..] = fields(cron);
    let minutes = cron_field(minutes, 0, 59, &[]);
    let hours = cron_field(hours, 0, 23, &[]);
    let days = cron_days(cron);
    let matches = |label: i64| {
        let of_day = index(label.rem_euclid(1440));
        hours[of_day / 60] && minutes[of_day % 60] && days.contain(watched.day(label * MINUTE))
    };
    let first_label = watched.first_day * 1440;
    let mut seen = vec![false; watched.days.len() * 1440];
    let mut fired = Vec::new();
    for pair in watched.ticks.windows(2) {
        let [before, now] = [pair[0], pair[1]];
        // Every minute that begins after the reading before, up to the reading now.
        for label in before.shown.div_euclid(MINUTE) + 1..=now.shown.div_euclid(MINUTE) {
            let seen = &mut seen[index(label - first_label)];
            if !*seen && matches(label) && fired.last() != Some(&now.at) {
                fired.push(now.at);
            }
            *seen = true;
        }
    }
    fired
}

pub(crate) fn edge(text: &str, watched: &Watched) -> Timestamp {
    if let Ok(instant) = text.parse() {
        return instant;
    }
    let date: Date = text.parse().unwrap();
    let midnight = seconds(date.at(0, 0, 0, 0));
    if watched.ticks[0].shown >= midnight {
        return Timestamp::MIN;
    }
    let reached = watched.ticks.iter().find(|tick| tick.shown >= midnight);
    reached.map_or(Timestamp::MAX, |tick| instant(tick.at))
}

const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The hours of one entry of `hoursOfDay`.
pub(crate) fn hours(entry: &str) -> Vec<bool> {
    around(&[entry.to_owned()], 24, |hour| hour.parse().unwrap())
}

/// Lists and ranges of values that go around; none at all means every value.
fn around(entries: &[String], size: usize, value: impl Fn(&str) -> usize) -> Vec<bool> {
    let mut set = vec![entries.is_empty(); size];
    for part in entries.iter().flat_map(|entry| entry.split(',')) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let mut at = value(first);
        set[at] = true;
        while at != value(last) {
            at = (at + 1) % size;
            set[at] = true;
        }
    }
    set
}

fn fields(cron: &str) -> [&str; 5] {
    cron.split_whitespace().collect::<Vec<_>>().try_into().unwrap()
}

fn cron_days(cron: &str) -> DayChoice {
    let [_, _, month_days, months, weekdays] = fields(cron);
    let mut on = cron_field(weekdays, 0, 7, &WEEKDAYS);
    on[0] |= on[7];
    DayChoice {
        months: cron_field(months, 1, 12, &MONTHS),
        month_days: cron_field(month_days, 1, 31, &[]),
        weekdays: on,
        both: month_days.starts_with('*') || weekdays.starts_with('*'),
    }
}

fn cron_field(text: &str, min: usize, max: usize, names: &[&str]) -> Vec<bool> {
    let value = |word: &str| match names.iter().position(|name| *name == word.to_lowercase()) {
        Some(index) => index + min,
        None => word.parse().unwrap(),
    };
    let mut set = vec![false; max + 1];
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, 1), |(range, step)| (range, step.parse().unwrap()));
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (value(first), value(last)),
            None if range == "*" => (min, max),
            None => (value(range), value(range)),
        };
        let mut at = first;
        while at <= last {
            set[at] = true;
            at += step;
        }
    }
    set
}

fn length(duration: &str) -> i64 {
    let (number, unit) = duration.split_at(duration.len() - 1);
    number.parse::<i64>().unwrap()
        * [("s", 1), ("m", 60), ("h", 3600)].iter().find(|(name, _)| *name == unit).unwrap().1
}

fn show(zone: &TimeZone, at: i64) -> i64 {
    seconds(zone.to_datetime(instant(at)))
}

fn instant(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

fn index(number: i64) -> usize {
    number.try_into().unwrap()
}

fn seconds(shown: DateTime) -> i64 {
    shown.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs()
}

fn calendar_day(day: i64) -> CalendarDay {
    let date = Date::constant(1970, 1, 1).checked_add(jiff::SignedDuration::from_hours(24 * day)).unwrap();
    CalendarDay {
        month: date.month().try_into().unwrap(),
        day: date.day().try_into().unwrap(),
        weekday: date.weekday().to_sunday_zero_offset().try_into().unwrap(),
    }
}
