//! What the documentation promises, one sentence at a time.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod model;
mod written;

use fivespot_schedule::{Schedule, ScheduleErrors, Source};
use jiff::Timestamp;
use model::Written;
use written::{cron, days_and_hours};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn in_zone(written: Written, zone: &str) -> Schedule {
    written::parse(&Written { zone: zone.into(), ..written })
}

/// The windows of a span in UTC, as `open/close`.
fn windows(schedule: &Schedule, from: &str, until: &str) -> Vec<String> {
    schedule.windows(at(from), at(until)).map(|window| format!("{}/{}", window.open, window.close)).collect()
}

fn with_overrides(written: Written, overrides: &[(&str, &str, bool)]) -> Written {
    let overrides = overrides.iter().map(|(from, until, active)| ((*from).into(), (*until).into(), *active)).collect();
    Written { overrides, ..written }
}

#[test]
fn nine_to_seventeen_closes_at_eighteen() {
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
fn hours_that_wrap_belong_to_each_listed_day_itself() {
    let nights = in_zone(days_and_hours("mon-fri", "22-6"), "UTC");
    // Monday's own early hours, and nothing of Saturday's.
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
fn a_window_that_belongs_to_its_start_day_is_cron_with_a_duration() {
    let nights = in_zone(cron("0 22 * * fri", "9h"), "UTC");
    assert_eq!(
        windows(&nights, "2026-06-15T00:00:00Z", "2026-06-22T00:00:00Z"),
        ["2026-06-19T22:00:00Z/2026-06-20T07:00:00Z"]
    );
}

#[test]
fn missing_days_or_hours_mean_every() {
    assert_eq!(in_zone(days_and_hours("", "9-17"), "UTC"), in_zone(days_and_hours("sun-sat", "9-17"), "UTC"));
    assert_eq!(in_zone(days_and_hours("sat", ""), "UTC"), in_zone(days_and_hours("sat", "0-23"), "UTC"));
}

#[test]
fn a_skipped_hour_does_not_exist_and_a_repeated_one_is_open_twice() {
    let two = in_zone(days_and_hours("", "2"), "Europe/Paris");
    assert_eq!(windows(&two, "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z"), Vec::<String>::new());
    assert_eq!(
        windows(&two, "2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z"),
        ["2026-10-25T00:00:00Z/2026-10-25T02:00:00Z"]
    );
}

#[test]
fn an_hour_that_is_half_skipped_is_open_for_the_other_half() {
    let two = in_zone(cron("0 2 * * *", ""), "Australia/Lord_Howe");
    assert_eq!(
        windows(&two, "2025-10-04T12:00:00Z", "2025-10-05T12:00:00Z"),
        ["2025-10-04T15:30:00Z/2025-10-04T16:00:00Z"]
    );
}

#[test]
fn a_firing_in_a_gap_happens_at_its_end_and_one_in_an_overlap_once() {
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
fn a_firing_on_a_skipped_day_happens_when_the_day_has_been_skipped() {
    let noon = in_zone(cron("0 12 30 12 *", "2h"), "Pacific/Apia");
    assert_eq!(
        windows(&noon, "2011-12-28T00:00:00Z", "2012-01-02T00:00:00Z"),
        ["2011-12-30T10:00:00Z/2011-12-30T12:00:00Z"]
    );
}

#[test]
fn windows_that_touch_are_one_window() {
    let always = in_zone(cron("0 * * * *", "1h"), "UTC");
    assert!(always.is_open(at("2026-01-01T00:00:00Z")));
    assert_eq!(always.next_change(at("2026-01-01T00:00:00Z")), None);
    let here = in_zone(cron("0 * * * *", "1h"), "Europe/Paris");
    // The repeated hour has no firing of its own.
    assert_eq!(here.next_change(at("2026-06-01T00:00:00Z")), Some(at("2026-10-25T01:00:00Z")));
    assert_eq!(here.next_opening(at("2026-06-01T00:00:00Z")), Some(at("2026-10-25T02:00:00Z")));
}

#[test]
fn what_never_opens_and_what_never_closes_say_so() {
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
fn the_leap_day_is_found_across_a_century_without_one() {
    let leap = in_zone(cron("0 0 29 2 *", ""), "Europe/Paris");
    assert_eq!(leap.next_opening(at("2096-03-01T00:00:00Z")), Some(at("2104-02-28T23:00:00Z")));
    let sundays = in_zone(cron("0 0 29 2 */7", "1h"), "UTC");
    assert_eq!(sundays.next_opening(at("2032-03-01T00:00:00Z")), Some(at("2060-02-29T00:00:00Z")));
}

#[test]
fn holidays_extra_hours_and_not_today_are_overrides() {
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
fn a_local_date_begins_when_the_wall_clock_first_reaches_it() {
    let never = || cron("0 0 30 2 *", "");
    // Midnight is skipped here: the day begins at one o'clock.
    let skipped = with_overrides(never(), &[("2018-11-04", "2018-11-05", true)]);
    assert_eq!(
        windows(&in_zone(skipped, "America/Sao_Paulo"), "2018-11-01T00:00:00Z", "2018-11-08T00:00:00Z"),
        ["2018-11-04T03:00:00Z/2018-11-05T02:00:00Z"]
    );
    // The last hour of a day is repeated here; the next day begins after both.
    let repeated = with_overrides(never(), &[("2018-02-18", "2018-02-19", true)]);
    assert_eq!(
        windows(&in_zone(repeated, "America/Sao_Paulo"), "2018-02-15T00:00:00Z", "2018-02-22T00:00:00Z"),
        ["2018-02-18T03:00:00Z/2018-02-19T03:00:00Z"]
    );
    // A day that does not exist begins and ends when it has been skipped, so nothing lies within it.
    let missing = with_overrides(never(), &[("2011-12-30", "2011-12-31", true)]);
    assert!(written::try_parse(&Written { zone: "Pacific/Apia".into(), ..missing }).is_err());
}

#[test]
fn an_override_may_last_to_the_end_of_time() {
    let now = at("2026-06-01T00:00:00Z");
    for until in ["9999-12-31", "9999-12-31T23:59:59Z"] {
        let off = with_overrides(days_and_hours("mon-fri", "9-17"), &[("2026-01-01", until, false)]);
        let off = in_zone(off, "America/New_York");
        assert_eq!(off.next_change(now), None);
        assert!(!off.is_open(Timestamp::MAX));
    }
}

#[test]
fn a_moment_is_read_as_the_edge_of_an_override_is() {
    let office = in_zone(days_and_hours("mon-fri", "9-17"), "Asia/Tokyo");
    assert_eq!(office.moment("--from", "2026-12-24"), Ok(at("2026-12-23T15:00:00Z")));
    let error = office.moment("--from", "2026-13-24").unwrap_err();
    assert_eq!(error.to_string(), r#"--from: "2026-13-24": at character 1: there is no such date"#);
}

fn errors(source: &Source<'_>) -> ScheduleErrors {
    Schedule::parse(source).unwrap_err()
}

#[test]
fn every_error_is_reported_with_its_field() {
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
            r#"duration: "9h": duration is the length of a cron window: set cron too, or leave duration out"#,
            r#"timezone: "Mars/Olympus": no such time zone: use an IANA name such as Europe/Paris, or UTC"#,
            r#"overrides[0].from: "2026-02-30": at character 1: there is no such date"#,
            r#"overrides[0].until: "tomorrow": at character 1: expected a date (2026-12-24) or an RFC 3339 instant (2026-12-24T18:00:00Z), found 't'"#,
            r#"overrides[1].from: "2026-01-01T00:00:00": at character 20: expected Z or an offset from UTC (+01:00), found the end"#,
        ]
    );
}

#[test]
fn cron_excludes_days_and_hours_and_something_must_be_set() {
    let days = ["mon".to_owned()];
    let both = errors(&Source { days_of_week: &days, cron: Some("0 9 * * *"), timezone: "UTC", ..Source::default() });
    assert_eq!(
        both.to_string(),
        r#"cron: "0 9 * * *": cron is mutually exclusive with daysOfWeek and hoursOfDay: set one or the other, not both"#
    );
    let nothing = errors(&Source::default());
    assert_eq!(
        nothing.to_string(),
        "daysOfWeek: nothing says when to open: set daysOfWeek and hoursOfDay, or cron; \
         timezone: a time zone is required: use an IANA name such as Europe/Paris, or UTC"
    );
}

#[test]
fn an_override_must_end_after_it_starts() {
    for (from, until) in
        [("2026-01-02", "2026-01-01"), ("2026-01-01", "2026-01-01"), ("2026-01-01T00:00:00Z", "2026-01-01")]
    {
        let written = with_overrides(days_and_hours("mon", "9"), &[(from, until, true)]);
        let errors = written::try_parse(&Written { zone: "UTC".into(), ..written }).unwrap_err();
        assert_eq!(errors.to_string(), format!("overrides[0].until: {until:?}: until must be later than from"));
    }
}
