//! Reference model: evaluates a schedule by sampling the wall clock minute by minute.
//!
//! The model shares no code with the crate under test. From the time library it uses only the conversion of an instant to
//! local time, and the calendar.

#![allow(dead_code, reason = "every test binary uses some of the functions")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// The text of a schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawSchedule {
    pub(crate) days: Vec<String>,
    pub(crate) hours: Vec<String>,
    pub(crate) cron: Option<String>,
    pub(crate) duration: Option<String>,
    pub(crate) zone: String,
    pub(crate) overrides: Vec<(String, String, bool)>,
}

/// Samples of the wall clock of a time zone over some days.
pub(crate) struct SampledClock {
    zone: TimeZone,
    samples: Vec<Sample>,
    first_day: i64,
    days: Vec<CalendarDay>,
}

#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: i64,
    /// The reading of the wall clock, in seconds since the reading 1970-01-01T00:00.
    reading: i64,
}

#[derive(Clone, Copy)]
struct CalendarDay {
    month: usize,
    day: usize,
    weekday: usize,
}

const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

/// Interval at which the offset is checked. No zone has two transitions within it.
const CHECK_INTERVAL: i64 = 15 * MINUTE;

/// Time to sample before the span: no transition sets the clock back by more than a day, and no window is longer than one.
const WARM_UP: i64 = 5 * DAY / 2;

impl SampledClock {
    /// Samples from [`WARM_UP`] before `from`, so that windows that opened earlier are known.
    pub(crate) fn new(zone: &TimeZone, from: i64, until: i64) -> Self {
        let mut samples = Vec::new();
        let mut at = (from - WARM_UP).div_euclid(CHECK_INTERVAL) * CHECK_INTERVAL;
        let mut reading = reading_at(zone, at);
        while at <= until {
            let next_reading = reading_at(zone, at + CHECK_INTERVAL);
            if next_reading - reading == CHECK_INTERVAL {
                // No transition: sample every minute of UTC, and every minute of the wall clock if the offset is not a
                // whole number of minutes.
                let seconds = reading.rem_euclid(MINUTE);
                for offset in (0..CHECK_INTERVAL).step_by(60) {
                    samples.push(Sample { at: at + offset, reading: reading + offset });
                    if seconds != 0 {
                        let offset = offset + MINUTE - seconds;
                        samples.push(Sample { at: at + offset, reading: reading + offset });
                    }
                }
            } else {
                samples.extend((at..at + CHECK_INTERVAL).map(|at| Sample { at, reading: reading_at(zone, at) }));
            }
            at += CHECK_INTERVAL;
            reading = next_reading;
        }
        let sampled_days = || samples.iter().map(|sample| sample.reading.div_euclid(DAY));
        let (first_day, last_day) = (sampled_days().min().unwrap(), sampled_days().max().unwrap());
        let days = (first_day..=last_day).map(calendar_day).collect();
        Self { zone: zone.clone(), samples, first_day, days }
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn day(&self, reading: i64) -> CalendarDay {
        self.days[index(reading.div_euclid(DAY) - self.first_day)]
    }
}

/// A schedule, evaluated over the sampled time.
pub(crate) struct Model<'a> {
    clock: &'a SampledClock,
    base: Base,
    /// Earlier entries first.
    overrides: Vec<(Timestamp, Timestamp, bool)>,
}

enum Base {
    /// Open during these hours of the matching days.
    Hours { days: DayChoice, hours: Vec<bool> },
    /// Open for `length` seconds from each of these instants.
    Firings { at: Vec<i64>, length: i64 },
}

/// January is 1, the first day of a month is 1, Sunday is 0.
struct DayChoice {
    months: Vec<bool>,
    month_days: Vec<bool>,
    weekdays: Vec<bool>,
    both: bool,
}

impl<'a> Model<'a> {
    pub(crate) fn new(raw: &RawSchedule, clock: &'a SampledClock) -> Self {
        let base = match (&raw.cron, &raw.duration) {
            (None, _) => Base::Hours {
                days: DayChoice {
                    months: vec![true; 13],
                    month_days: vec![true; 32],
                    weekdays: wrapping_set(&raw.days, 7, |day| WEEKDAYS.iter().position(|name| *name == day).unwrap()),
                    both: true,
                },
                hours: wrapping_set(&raw.hours, 24, |hour| hour.parse().unwrap()),
            },
            (Some(cron), None) => {
                let [_, hours, ..] = fields(cron);
                Base::Hours { days: cron_days(cron), hours: cron_field(hours, 0, 23, &[]) }
            }
            (Some(cron), Some(duration)) => Base::Firings { at: firings(cron, clock), length: length(duration) },
        };
        let overrides = &raw.overrides;
        let overrides =
            overrides.iter().map(|(from, until, active)| (edge(from, clock), edge(until, clock), *active)).collect();
        Self { clock, base, overrides }
    }

    /// Whether the schedule is open at an instant within the sampled time.
    pub(crate) fn is_open(&self, at: Timestamp) -> bool {
        let second = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
        self.overridden(at)
            .unwrap_or_else(|| self.base_is_open(Sample { at: second, reading: reading_at(&self.clock.zone, second) }))
    }

    /// Whether the schedule is open at a sample.
    pub(crate) fn is_open_at(&self, sample: Sample) -> bool {
        let overridden = if self.overrides.is_empty() { None } else { self.overridden(instant(sample.at)) };
        overridden.unwrap_or_else(|| self.base_is_open(sample))
    }

    fn overridden(&self, at: Timestamp) -> Option<bool> {
        let covers = |(from, until, _): &&(Timestamp, Timestamp, bool)| *from <= at && at < *until;
        self.overrides.iter().rev().find(covers).map(|(_, _, active)| *active)
    }

    fn base_is_open(&self, sample: Sample) -> bool {
        match &self.base {
            Base::Hours { days, hours } => {
                hours[index(sample.reading.rem_euclid(DAY) / 3600)] && days.contain(self.clock.day(sample.reading))
            }
            Base::Firings { at, length } => {
                let earlier = &at[..at.partition_point(|firing| *firing <= sample.at)];
                earlier.last().is_some_and(|last| sample.at < last + length)
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

/// The instants at which an expression fires: when the clock first shows the minute, or, if the minute is skipped, at the end
/// of the gap.
fn firings(cron: &str, clock: &SampledClock) -> Vec<i64> {
    let [minutes, hours, ..] = fields(cron);
    let minutes = cron_field(minutes, 0, 59, &[]);
    let hours = cron_field(hours, 0, 23, &[]);
    let days = cron_days(cron);
    let matches = |label: i64| {
        let of_day = index(label.rem_euclid(1440));
        hours[of_day / 60] && minutes[of_day % 60] && days.contain(clock.day(label * MINUTE))
    };
    let first_label = clock.first_day * 1440;
    let mut seen = vec![false; clock.days.len() * 1440];
    let mut fired = Vec::new();
    for pair in clock.samples.windows(2) {
        let [before, now] = [pair[0], pair[1]];
        // Every minute that starts after the previous reading, up to the current one.
        for label in before.reading.div_euclid(MINUTE) + 1..=now.reading.div_euclid(MINUTE) {
            let seen = &mut seen[index(label - first_label)];
            if !*seen && matches(label) && fired.last() != Some(&now.at) {
                fired.push(now.at);
            }
            *seen = true;
        }
    }
    fired
}

pub(crate) fn edge(text: &str, clock: &SampledClock) -> Timestamp {
    if let Ok(instant) = text.parse() {
        return instant;
    }
    let date: Date = text.parse().unwrap();
    let midnight = seconds(date.at(0, 0, 0, 0));
    if clock.samples[0].reading >= midnight {
        return Timestamp::MIN;
    }
    let reached = clock.samples.iter().find(|sample| sample.reading >= midnight);
    reached.map_or(Timestamp::MAX, |sample| instant(sample.at))
}

const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The hours of one entry of `hoursOfDay`.
pub(crate) fn hours(entry: &str) -> Vec<bool> {
    wrapping_set(&[entry.to_owned()], 24, |hour| hour.parse().unwrap())
}

/// Parses lists and ranges of values that wrap around. An empty list means every value.
fn wrapping_set(entries: &[String], size: usize, value: impl Fn(&str) -> usize) -> Vec<bool> {
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

fn reading_at(zone: &TimeZone, at: i64) -> i64 {
    seconds(zone.to_datetime(instant(at)))
}

fn instant(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

fn index(number: i64) -> usize {
    number.try_into().unwrap()
}

fn seconds(reading: DateTime) -> i64 {
    reading.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs()
}

fn calendar_day(day: i64) -> CalendarDay {
    let date = Date::constant(1970, 1, 1).checked_add(jiff::SignedDuration::from_hours(24 * day)).unwrap();
    CalendarDay {
        month: date.month().try_into().unwrap(),
        day: date.day().try_into().unwrap(),
        weekday: date.weekday().to_sunday_zero_offset().try_into().unwrap(),
    }
}
