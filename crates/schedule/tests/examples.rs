//! Examples of the documented behaviour.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod fixtures;
mod model;

use fivespot_schedule::{Schedule, ScheduleErrors, Source};
use fixtures::{cron, days_and_hours};
use jiff::Timestamp;
use model::RawSchedule;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn in_zone(raw: RawSchedule, zone: &str) -> Schedule {
    fixtures::parse(&RawSchedule { zone: zone.into(), ..raw })
}

/// The windows of a span in UTC, as `open/close`.
fn windows(schedule: &Schedule, from: &str, until: &str) -> Vec<String> {
    schedule.windows(at(from), at(until)).map(|window| format!("{}/{}", window.open, window.close)).collect()
}

fn with_overrides(raw: RawSchedule, overrides: &[(&str, &str, bool)]) -> RawSchedule {
    let overrides = overrides.iter().map(|(from, until, active)| ((*from).into(), (*until).into(), *active)).collect();
    RawSchedule { overrides, ..raw }
}

#[test]
fn hour_range_includes_last_hour() {
    let office = in_zone(days_and_hours("mon-fri", "9-17"), "America/New_York");
    assert_eq!(
        windows(&office, "2026-06-12T00:00:00Z", "2026-06-16T00:00:00Z"),
        ["2026-06-12T13:00:00Z/2026-06-12T22:00:00Z", "2026-06-15T13:00:00Z/2026-06-15T22:00:00Z"]
    );
    assert!(office.is_open(at("2026-06-12T17:59:59.999-04:00")));
    assert_eq!(office.next_opening(at("2026-06-12T12:00:00-04:00")), Some(at("2026-06-15T09:00:00-04:00")));
    assert_eq!(office.current_close(at("2026-06-12T12:00:00-04:00")), Some(at("2026-06-12T18:00:00-04:00")));
    assert_eq!(office.current_close(at("2026-06-13T12:00:00-04:00")), None);
}

#[test]
fn wrapping_hours_belong_to_their_own_day() {
    let nights = in_zone(days_and_hours("mon-fri", "22-6"), "UTC");
    // Monday includes its own early hours, Saturday none.
    assert_eq!(
        windows(&nights, "2026-06-14T12:00:00Z", "2026-06-16T12:00:00Z"),
        ["2026-06-15T00:00:00Z/2026-06-15T07:00:00Z", "2026-06-15T22:00:00Z/2026-06-16T07:00:00Z"]
    );
    assert_eq!(
        windows(&nights, "2026-06-19T12:00:00Z", "2026-06-21T00:00:00Z"),
        ["2026-06-19T22:00:00Z/2026-06-20T00:00:00Z"]
    );
}

#[test]
fn cron_with_duration_crosses_midnight() {
    let nights = in_zone(cron("0 22 * * fri", "9h"), "UTC");
    assert_eq!(
        windows(&nights, "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"),
        ["2026-06-19T22:00:00Z/2026-06-20T07:00:00Z"]
    );
}

#[test]
fn empty_days_or_hours_mean_every() {
    assert_eq!(in_zone(days_and_hours("", "9-17"), "UTC"), in_zone(days_and_hours("sun-sat", "9-17"), "UTC"));
    assert_eq!(in_zone(days_and_hours("sat", ""), "UTC"), in_zone(days_and_hours("sat", "0-23"), "UTC"));
}

#[test]
fn skipped_hour_is_closed_and_repeated_hour_is_open_twice() {
    let two = in_zone(days_and_hours("", "2"), "Europe/Paris");
    assert_eq!(windows(&two, "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z"), Vec::<String>::new());
    assert_eq!(
        windows(&two, "2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z"),
        ["2026-10-25T00:00:00Z/2026-10-25T02:00:00Z"]
    );
}

#[test]
fn half_skipped_hour_is_open_for_the_other_half() {
    let two = in_zone(cron("0 2 * * *", ""), "Australia/Lord_Howe");
    assert_eq!(
        windows(&two, "2025-10-04T12:00:00Z", "2025-10-05T12:00:00Z"),
        ["2025-10-04T15:30:00Z/2025-10-04T16:00:00Z"]
    );
}

#[test]
fn firing_in_gap_happens_at_its_end_and_in_overlap_once() {
    let short = in_zone(cron("30 2 * * *", "90m"), "Europe/Paris");
    assert_eq!(
        windows(&short, "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"),
        ["2026-03-29T01:00:00Z/2026-03-29T02:30:00Z"]
    );
    assert_eq!(
        windows(&short, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"),
        ["2026-10-25T00:30:00Z/2026-10-25T02:00:00Z"]
    );
}

#[test]
fn firing_on_skipped_day_happens_at_end_of_gap() {
    let noon = in_zone(cron("0 12 30 12 *", "2h"), "Pacific/Apia");
    assert_eq!(
        windows(&noon, "2011-12-28T00:00:00Z", "2012-01-02T00:00:00Z"),
        ["2011-12-30T10:00:00Z/2011-12-30T12:00:00Z"]
    );
}

#[test]
fn adjacent_windows_merge() {
    let always = in_zone(cron("0 * * * *", "1h"), "UTC");
    assert!(always.is_open(at("2026-01-01T00:00:00Z")));
    assert_eq!(always.next_change(at("2026-01-01T00:00:00Z")), None);
    let here = in_zone(cron("0 * * * *", "1h"), "Europe/Paris");
    // The repeated hour has no firing of its own.
    assert_eq!(here.next_change(at("2026-06-01T00:00:00Z")), Some(at("2026-10-25T01:00:00Z")));
    assert_eq!(here.next_opening(at("2026-06-01T00:00:00Z")), Some(at("2026-10-25T02:00:00Z")));
}

#[test]
fn never_open_and_always_open_have_no_next_change() {
    let now = at("2026-06-01T00:00:00Z");
    let never = [
        in_zone(cron("0 0 30 2 *", ""), "Europe/Paris"),
        in_zone(cron("0 0 31 4,6,9,11 *", "9h"), "Europe/Paris"),
        // The second Sunday of March has no two o'clock in New York.
        in_zone(cron("0 2 8-14 3 */7", ""), "America/New_York"),
    ];
    for schedule in never {
        assert!(!schedule.is_open(now));
        assert_eq!((schedule.next_change(now), schedule.next_opening(now)), (None, None));
        assert_eq!(schedule.windows(now, Timestamp::MAX).count(), 0);
    }
    let always = [
        in_zone(days_and_hours("", "12-11"), "Europe/Paris"),
        in_zone(cron("* * * * *", ""), "Europe/Paris"),
        in_zone(cron("* * * * *", "90m"), "Europe/Paris"),
        in_zone(cron("0 9 * * *", "24h"), "Asia/Tokyo"),
        in_zone(cron("*/30 * * * *", "24h"), "America/Juneau"),
    ];
    for schedule in always {
        assert!(schedule.is_open(now));
        assert_eq!(
            (schedule.next_change(now), schedule.current_close(now), schedule.next_opening(now)),
            (None, None, None)
        );
        assert_eq!(windows(&schedule, "2026-06-01T00:00:00Z", "2126-06-01T00:00:00Z").len(), 1);
    }
}

#[test]
fn leap_day_is_found_across_non_leap_century() {
    let leap = in_zone(cron("0 0 29 2 *", ""), "Europe/Paris");
    assert_eq!(leap.next_opening(at("2096-03-01T00:00:00Z")), Some(at("2104-02-28T23:00:00Z")));
    let sundays = in_zone(cron("0 0 29 2 */7", "1h"), "UTC");
    assert_eq!(sundays.next_opening(at("2032-03-01T00:00:00Z")), Some(at("2060-02-29T00:00:00Z")));
}

#[test]
fn overrides_close_and_open() {
    let office = with_overrides(
        days_and_hours("mon-fri", "9-17"),
        &[
            ("2026-12-24", "2026-12-27", false),
            ("2026-12-25T12:00:00+01:00", "2026-12-25T14:00:00+01:00", true),
            ("2026-12-23T18:00:00+01:00", "2026-12-23T20:00:00+01:00", true),
        ],
    );
    assert_eq!(
        windows(&in_zone(office, "Europe/Paris"), "2026-12-23T00:00:00Z", "2026-12-29T00:00:00Z"),
        [
            "2026-12-23T08:00:00Z/2026-12-23T19:00:00Z",
            "2026-12-25T11:00:00Z/2026-12-25T13:00:00Z",
            "2026-12-28T08:00:00Z/2026-12-28T17:00:00Z"
        ]
    );
}

#[test]
fn local_date_starts_when_wall_clock_reaches_midnight() {
    let never = || cron("0 0 30 2 *", "");
    // Midnight is skipped: the day starts at one o'clock.
    let skipped = with_overrides(never(), &[("2018-11-04", "2018-11-05", true)]);
    assert_eq!(
        windows(&in_zone(skipped, "America/Sao_Paulo"), "2018-11-01T00:00:00Z", "2018-11-08T00:00:00Z"),
        ["2018-11-04T03:00:00Z/2018-11-05T02:00:00Z"]
    );
    // The last hour of a day is repeated: the next day starts after both.
    let repeated = with_overrides(never(), &[("2018-02-18", "2018-02-19", true)]);
    assert_eq!(
        windows(&in_zone(repeated, "America/Sao_Paulo"), "2018-02-15T00:00:00Z", "2018-02-22T00:00:00Z"),
        ["2018-02-18T03:00:00Z/2018-02-19T03:00:00Z"]
    );
    // A skipped day starts and ends at the same instant, so the override is empty.
    let missing = with_overrides(never(), &[("2011-12-30", "2011-12-31", true)]);
    assert!(fixtures::try_parse(&RawSchedule { zone: "Pacific/Apia".into(), ..missing }).is_err());
}

#[test]
fn override_may_last_forever() {
    let now = at("2026-06-01T00:00:00Z");
    for until in ["9999-12-31", "9999-12-31T23:59:59Z"] {
        let off = with_overrides(days_and_hours("mon-fri", "9-17"), &[("2026-01-01", until, false)]);
        let off = in_zone(off, "America/New_York");
        assert_eq!(off.next_change(now), None);
        assert!(!off.is_open(Timestamp::MAX));
    }
}

#[test]
fn parse_instant_accepts_dates_and_timestamps() {
    let office = in_zone(days_and_hours("mon-fri", "9-17"), "Asia/Tokyo");
    assert_eq!(office.parse_instant("2026-12-24"), Ok(at("2026-12-23T15:00:00Z")));
    assert_eq!(office.parse_instant("2026-12-24T12:00:00+09:00"), Ok(at("2026-12-24T03:00:00Z")));
    let error = office.parse_instant("2026-13-24").unwrap_err();
    assert_eq!(error.to_string(), r#""2026-13-24": at character 1: this date does not exist"#);
}

fn errors(source: &Source<'_>) -> ScheduleErrors {
    Schedule::parse(source).unwrap_err()
}

#[test]
fn all_errors_are_reported() {
    let days = ["mon".to_owned(), "Tue-fri".to_owned()];
    let hours = ["9-25".to_owned()];
    let edge = |from, until| fivespot_schedule::OverrideSource { from, until, active: true };
    let all = errors(&Source {
        days_of_week: &days,
        hours_of_day: &hours,
        duration: Some("9h"),
        timezone: "Mars/Olympus",
        overrides: vec![edge("2026-02-30", "tomorrow"), edge("2026-01-01T00:00:00", "2026-01-02")],
        ..Source::default()
    });
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"daysOfWeek[1]: "Tue-fri": at character 1: "Tue" is not a day: use mon, tue, wed, thu, fri, sat or sun, in lower case"#,
            r#"hoursOfDay[0]: "9-25": at character 3: hour 25 is not between 0 and 23"#,
            r#"duration: "9h": duration requires cron: set cron, or remove duration"#,
            r#"timezone: "Mars/Olympus": unknown time zone: use an IANA name such as Europe/Paris, or UTC"#,
            r#"overrides[0].from: "2026-02-30": at character 1: this date does not exist"#,
            r#"overrides[0].until: "tomorrow": at character 1: expected a date (2026-12-24) or an RFC 3339 timestamp (2026-12-24T18:00:00Z), found 't'"#,
            r#"overrides[1].from: "2026-01-01T00:00:00": at character 20: expected Z or an offset from UTC (+01:00), found the end of the text"#,
        ]
    );
}

#[test]
fn cron_with_days_and_empty_schedule_are_rejected() {
    let days = ["mon".to_owned()];
    let both = errors(&Source { days_of_week: &days, cron: Some("0 9 * * *"), timezone: "UTC", ..Source::default() });
    assert_eq!(
        both.to_string(),
        r#"cron: "0 9 * * *": cron is mutually exclusive with daysOfWeek and hoursOfDay: set one or the other, not both"#
    );
    let nothing = errors(&Source::default());
    assert_eq!(
        nothing.to_string(),
        "daysOfWeek: the schedule is empty: set daysOfWeek and hoursOfDay, or cron; \
         timezone: a time zone is required: use an IANA name such as Europe/Paris, or UTC"
    );
}

#[test]
fn override_must_end_after_it_starts() {
    for (from, until) in
        [("2026-01-02", "2026-01-01"), ("2026-01-01", "2026-01-01"), ("2026-01-01T00:00:00Z", "2026-01-01")]
    {
        let raw = with_overrides(days_and_hours("mon", "9"), &[(from, until, true)]);
        let errors = fixtures::try_parse(&RawSchedule { zone: "UTC".into(), ..raw }).unwrap_err();
        assert_eq!(errors.to_string(), format!("overrides[0].until: {until:?}: until must be later than from"));
    }
}
