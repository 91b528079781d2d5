//! Schedules for tests: a pool that holds every special case, and random ones.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use fivespot_schedule::{OverrideSource, Schedule, ScheduleErrors, Source};
use proptest::prelude::*;

use crate::model::Written;

pub(crate) fn try_parse(written: &Written) -> Result<Schedule, ScheduleErrors> {
    let overrides = written.overrides.iter();
    Schedule::parse(&Source {
        days_of_week: &written.days,
        hours_of_day: &written.hours,
        cron: written.cron.as_deref(),
        duration: written.duration.as_deref(),
        timezone: &written.zone,
        overrides: overrides.map(|(from, until, active)| OverrideSource { from, until, active: *active }).collect(),
    })
}

pub(crate) fn parse(written: &Written) -> Schedule {
    try_parse(written).unwrap_or_else(|errors| panic!("{written:?}: {errors}"))
}

pub(crate) fn days_and_hours(days: &str, hours: &str) -> Written {
    let list = |text: &str| {
        if text.is_empty() { Vec::new() } else { vec![text.to_owned()] }
    };
    Written { days: list(days), hours: list(hours), ..Written::default() }
}

pub(crate) fn cron(cron: &str, duration: &str) -> Written {
    let duration = (!duration.is_empty()).then(|| duration.to_owned());
    Written { cron: Some(cron.to_owned()), duration, ..Written::default() }
}

/// Schedules whose edges lie where wall clocks are turned, months end and weeks wrap.
pub(crate) fn pool() -> Vec<Written> {
    vec![
        days_and_hours("mon-fri", "9-17"),
        days_and_hours("fri-mon", "22-6"),
        days_and_hours("sat,sun", ""),
        days_and_hours("", "2"),
        days_and_hours("", "0,3"),
        days_and_hours("sun", "23-1"),
        days_and_hours("tue-mon", "10-9"),
        cron("0 9-17 * * 1-5", ""),
        cron("7-50/9 1-3,23 * * *", ""),
        cron("0 0 29,30,31 * *", ""),
        cron("30 2 13 * 5", ""),
        cron("0 */3 */2 * mon-fri", ""),
        cron("15 0-2 1-7 3,10,11 */7", ""),
        cron("0 0 30 2 *", ""),
        cron("0 2 * * *", "90m"),
        cron("30 2 * * *", "1h"),
        cron("0 0 * * *", "24h"),
        cron("59 23 * * *", "2m"),
        cron("* * * * *", "1m"),
        cron("* * * * *", "24h"),
        cron("*/5 * * * *", "30s"),
        cron("0 * * * *", "1h"),
        cron("15,45 1-3 * * *", "30m"),
        cron("0 22 * * 1-5", "9h"),
        cron("59 23 31 12 *", "2h"),
        cron("0 9 * * sat,sun", "24h"),
        cron("*/2 * */2 * *", "2m"),
        cron("0 0 29 2 *", "25m"),
        cron("0 0 31 4 *", "1h"),
    ]
}

/// A random schedule without a zone and without overrides.
pub(crate) fn base() -> impl Strategy<Value = Written> {
    use prop::collection::vec;
    prop_oneof![
        3 => (vec(day_entry(), 0..3), vec(hour_entry(), 1..3))
            .prop_map(|(days, hours)| Written { days, hours, ..Written::default() }),
        1 => vec(day_entry(), 1..3).prop_map(|days| Written { days, ..Written::default() }),
        2 => expression().prop_map(|text| cron(&text, "")),
        4 => (expression(), duration()).prop_map(|(text, length)| cron(&text, &length)),
        2 => prop::sample::select(pool()),
    ]
}

pub(crate) fn day_entry() -> impl Strategy<Value = String> {
    let day = || prop::sample::select(vec!["mon", "tue", "wed", "thu", "fri", "sat", "sun"]);
    prop_oneof![
        day().prop_map(str::to_owned),
        (day(), day()).prop_map(|(first, last)| format!("{first}-{last}")),
        (day(), day(), day()).prop_map(|(one, first, last)| format!("{one},{first}-{last}")),
    ]
}

pub(crate) fn hour_entry() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..24).prop_map(|hour| format!("{hour}")),
        (0..24, 0..24).prop_map(|(first, last)| format!("{first:02}-{last}")),
        (0..24, 0..24, 0..24).prop_map(|(one, first, last)| format!("{one},{first}-{last}")),
    ]
}

fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let range = || (min..=max).prop_flat_map(move |first| (Just(first), first..=max));
    prop_oneof![
        3 => Just("*".to_owned()),
        1 => (1..=max).prop_map(|step| format!("*/{step}")),
        3 => (min..=max).prop_map(|value| value.to_string()),
        2 => range().prop_map(|(first, last)| format!("{first}-{last}")),
        1 => (range(), 1..9_u32).prop_map(|((first, last), step)| format!("{first}-{last}/{step}")),
        1 => (range(), min..=max).prop_map(|((first, last), value)| format!("{value},{first}-{last}")),
    ]
}

pub(crate) fn expression() -> impl Strategy<Value = String> {
    let weekday = prop_oneof![
        2 => field(0, 7),
        1 => Just("mon-fri".to_owned()),
        1 => Just("Sun,sat".to_owned()),
    ];
    let month = prop_oneof![3 => Just("*".to_owned()), 2 => field(1, 12), 1 => Just("feb-MAR,oct".to_owned())];
    (field(0, 59), field(0, 23), field(1, 31), month, weekday)
        .prop_map(|(minute, hour, month_day, month, weekday)| format!("{minute} {hour} {month_day} {month} {weekday}"))
}

pub(crate) fn duration() -> impl Strategy<Value = String> {
    prop_oneof![
        (1..=24).prop_map(|hours| format!("{hours}h")),
        (1..=1440).prop_map(|minutes| format!("{minutes}m")),
        (1..=120).prop_map(|minutes| format!("{minutes}m")),
        (1..=86_400).prop_map(|seconds| format!("{seconds}s")),
    ]
}

/// Overrides that lie within a few days of an instant, in both notations.
pub(crate) fn overrides(around: i64) -> impl Strategy<Value = Vec<(String, String, bool)>> {
    let instant = |at: i64| jiff::Timestamp::from_second(at).unwrap().to_string();
    let edge = move || {
        prop_oneof![
            (-2 * 86_400_i64..3 * 86_400).prop_map(move |off| instant(around + off)),
            (-2_i64..4).prop_map(move |days| instant(around + days * 86_400)[..10].to_owned()),
        ]
    };
    prop::collection::vec((edge(), edge(), any::<bool>()), 0..4)
}
