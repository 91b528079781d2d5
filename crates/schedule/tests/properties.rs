//! Properties that hold for every schedule.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod fixtures;
mod model;

use fivespot_schedule::{Schedule, Window};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use model::RawSchedule;
use proptest::prelude::*;

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);
const DAY: i64 = 86_400;

fn zones() -> Vec<String> {
    TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect()
}

/// A schedule in some zone, with overrides near an instant between 1970 and 2100, and that instant.
fn any_schedule() -> impl Strategy<Value = (RawSchedule, Timestamp)> {
    (fixtures::base(), prop::sample::select(zones()), 0..4_102_444_800_i64).prop_flat_map(|(base, zone, at)| {
        (fixtures::overrides(at), 0..1_000_000_000_i32).prop_map(move |(overrides, nanosecond)| {
            let raw = RawSchedule { zone: zone.clone(), overrides, ..base.clone() };
            (without_rejected_overrides(raw), Timestamp::new(at, nanosecond).unwrap())
        })
    })
}

fn without_rejected_overrides(mut raw: RawSchedule) -> RawSchedule {
    let all = std::mem::take(&mut raw.overrides);
    for entry in all {
        raw.overrides.push(entry);
        if fixtures::try_parse(&raw).is_err() {
            raw.overrides.pop();
        }
    }
    raw
}

fn days_later(at: Timestamp, days: i64) -> Timestamp {
    at + SignedDuration::from_secs(days * DAY)
}

fn windows(schedule: &Schedule, from: Timestamp, until: Timestamp) -> Vec<Window> {
    schedule.windows(from, until).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_are_disjoint_ordered_and_maximal((raw, from) in any_schedule()) {
        let schedule = fixtures::parse(&raw);
        let until = days_later(from, 9);
        let mut end = None;
        for window in schedule.windows(from, until) {
            prop_assert!(from <= window.open && window.open < window.close && window.close <= until);
            prop_assert!(end.is_none_or(|end| end < window.open), "windows overlap or touch");
            prop_assert!(schedule.is_open(window.open) && schedule.is_open(window.close - NANOSECOND));
            prop_assert!(window.open == from || !schedule.is_open(window.open - NANOSECOND));
            prop_assert!(window.close == until || !schedule.is_open(window.close));
            end = Some(window.close);
        }
    }

    #[test]
    fn next_change_is_next_edge_of_a_window((raw, at) in any_schedule(), days in 1..40_i64) {
        let schedule = fixtures::parse(&raw);
        let until = days_later(at, days);
        let edges = windows(&schedule, at, until).into_iter().flat_map(|window| [window.open, window.close]);
        let next_edge = edges.into_iter().find(|edge| at < *edge && *edge < until);
        prop_assert_eq!(schedule.next_change(at).filter(|change| *change < until), next_edge);
    }

    #[test]
    fn constant_until_next_change((raw, at) in any_schedule(), parts in prop::collection::vec(0.0..1.0, 8)) {
        let schedule = fixtures::parse(&raw);
        let Some(change) = schedule.next_change(at) else { return Ok(()) };
        prop_assert!(change > at);
        prop_assert_ne!(schedule.is_open(change), schedule.is_open(at));
        for part in parts {
            let between = at + change.duration_since(at).mul_f64(part);
            prop_assert_eq!(schedule.is_open(between), schedule.is_open(at));
            prop_assert_eq!(schedule.next_change(between), Some(change));
        }
    }

    #[test]
    fn next_opening_and_current_close_are_changes((raw, at) in any_schedule()) {
        let schedule = fixtures::parse(&raw);
        let change = schedule.next_change(at);
        if schedule.is_open(at) {
            prop_assert_eq!(schedule.current_close(at), change);
            prop_assert_eq!(schedule.next_opening(at), change.and_then(|close| schedule.next_change(close)));
        } else {
            prop_assert_eq!(schedule.current_close(at), None);
            prop_assert_eq!(schedule.next_opening(at), change);
        }
        if let Some(opening) = schedule.next_opening(at) {
            prop_assert!(opening > at && schedule.is_open(opening) && !schedule.is_open(opening - NANOSECOND));
        }
    }

    #[test]
    fn split_span_has_the_same_windows((raw, from) in any_schedule(), cut in 0..9 * DAY) {
        let schedule = fixtures::parse(&raw);
        let (cut, until) = (from + SignedDuration::from_secs(cut), days_later(from, 9));
        let mut joined: Vec<Window> = windows(&schedule, from, cut);
        for window in schedule.windows(cut, until) {
            match joined.last_mut() {
                Some(last) if last.close == window.open => last.close = window.close,
                Some(_) | None => joined.push(window),
            }
        }
        prop_assert_eq!(joined, windows(&schedule, from, until));
    }

    #[test]
    fn cron_hours_equal_hours_of_day(hours in fixtures::hour_entry(), (_, at) in any_schedule(), zone in prop::sample::select(zones())) {
        let by_name = fixtures::parse(&RawSchedule { zone: zone.clone(), ..fixtures::days_and_hours("mon-fri", &hours) });
        let list: Vec<_> = (0..24).filter(|hour| model::hours(&hours)[*hour]).map(|hour| hour.to_string()).collect();
        let cron = format!("*/20 {} * * 1-5", list.join(","));
        let by_cron = fixtures::parse(&RawSchedule { zone, ..fixtures::cron(&cron, "") });
        prop_assert_eq!(by_name.next_change(at), by_cron.next_change(at));
        prop_assert_eq!(by_name, by_cron);
    }

    #[test]
    fn no_panic_at_ends_of_time(base in fixtures::base(), zone in prop::sample::select(zones()), off in 0..400 * DAY) {
        let schedule = fixtures::parse(&RawSchedule { zone, ..base });
        let off = SignedDuration::from_secs(off);
        for at in [Timestamp::MIN, Timestamp::MIN + off, Timestamp::MAX - off, Timestamp::MAX] {
            let change = schedule.next_change(at);
            prop_assert!(change.is_none_or(|change| change > at && schedule.is_open(change) != schedule.is_open(at)));
            let _ = (schedule.next_opening(at), schedule.current_close(at));
        }
        prop_assert!(windows(&schedule, Timestamp::MAX - off, Timestamp::MAX).iter().all(|window| window.open < window.close));
        prop_assert_eq!(schedule.windows(Timestamp::MAX, Timestamp::MIN).count(), 0);
        prop_assert!(schedule.windows(Timestamp::MIN, Timestamp::MAX).take(3).count() <= 3);
    }
}

#[test]
fn time_zone_is_the_named_one() {
    let schedule =
        fixtures::parse(&RawSchedule { zone: "Europe/Paris".into(), ..fixtures::days_and_hours("mon", "9") });
    assert_eq!(*schedule.time_zone(), TimeZoneDatabase::bundled().get("Europe/Paris").unwrap());
    assert_ne!(*schedule.time_zone(), TimeZone::UTC);
}
