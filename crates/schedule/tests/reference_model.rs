//! Compares the engine with a reference model that samples the wall clock minute by minute, in every zone of the database.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod fixtures;
mod model;

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use fivespot_schedule::{Schedule, Window};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use model::{Model, RawSchedule, SampledClock};
use proptest::prelude::*;

const DAY: i64 = 86_400;

/// Time span before and after a transition that is compared.
const AROUND: i64 = 3 * DAY / 2;

/// Transitions after this year repeat a rule that earlier transitions cover.
const LAST_YEAR: i16 = 2040;

fn zones() -> Vec<(String, TimeZone)> {
    let database = TimeZoneDatabase::bundled();
    database.available().map(|name| (name.to_string(), database.get(name.as_str()).unwrap())).collect()
}

fn transitions(zone: &TimeZone) -> Vec<i64> {
    let last = jiff::civil::date(LAST_YEAR, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp();
    let all = zone.following(Timestamp::MIN).map(|transition| transition.timestamp());
    all.take_while(|at| *at < last).map(Timestamp::as_second).collect()
}

/// Prints a line even if the test passes.
#[allow(clippy::explicit_write, reason = "the test runner captures the print macros")]
fn print_uncaptured(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

fn second(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

/// Compares the results of the engine for a time span with the model.
fn compare(raw: &RawSchedule, clock: &SampledClock, from: i64, until: i64) {
    let schedule = fixtures::parse(raw);
    let model = Model::new(raw, clock);
    let windows: Vec<Window> = schedule.windows(second(from), second(until)).collect();
    let context = |at: Timestamp| format!("{raw:?} at {at}, windows {windows:?}");

    let in_span = |at: i64| from <= at && at < until;
    let mut remaining = windows.iter().peekable();
    for (index, sample) in clock.samples().iter().filter(|sample| in_span(sample.at)).enumerate() {
        let at = second(sample.at);
        while remaining.next_if(|window| window.close <= at).is_some() {}
        let open = remaining.peek().is_some_and(|window| window.open <= at);
        assert_eq!(open, model.is_open_at(*sample), "{}", context(at));
        if index % 97 == 0 {
            assert_eq!(schedule.is_open(at), open, "{}", context(at));
        }
    }
    for edge in windows.iter().flat_map(|window| [window.open, window.close]) {
        if edge == second(from) || edge == second(until) {
            continue;
        }
        let before = edge.checked_sub(jiff::SignedDuration::from_nanos(1)).unwrap();
        assert_ne!(model.is_open(before), model.is_open(edge), "{}", context(edge));
        for at in [before, edge] {
            assert_eq!(schedule.is_open(at), model.is_open(at), "{}", context(at));
        }
    }
    check_next_change(&schedule, &windows, from, until);
}

/// Asserts for a few instants that the next change is the next edge of `windows`.
fn check_next_change(schedule: &Schedule, windows: &[Window], from: i64, until: i64) {
    let edges: Vec<_> = windows.iter().flat_map(|window| [window.open, window.close]).collect();
    for part in 0..4 {
        let at = second(from + (until - from) * part / 4 + part);
        let expected = edges.iter().find(|edge| **edge > at && **edge < second(until));
        let found = schedule.next_change(at).filter(|change| *change < second(until));
        assert_eq!(found.as_ref(), expected, "{schedule:?} after {at}");
    }
}

fn in_zone(raw: &RawSchedule, name: &str) -> RawSchedule {
    RawSchedule { zone: name.to_owned(), ..raw.clone() }
}

/// Adds overrides that start or end at the transition or on the local dates around it.
fn with_overrides(raw: RawSchedule, transition: i64) -> RawSchedule {
    let instant = |off: i64| second(transition + off).to_string();
    let date = |off: i64| instant(off)[..10].to_owned();
    let overrides = vec![
        (date(-DAY), date(DAY), true),
        (instant(-3600), instant(1800), false),
        (date(DAY), instant(DAY * 2 + 17), false),
    ];
    RawSchedule { overrides: overrides.into_iter().filter(|(from, until, _)| from < until).collect(), ..raw }
}

fn in_parallel<T: Sync>(items: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(item);
                }
            });
        }
    });
}

#[test]
fn all_transitions_of_all_zones() {
    let (zones, pool) = (zones(), fixtures::pool());
    let compared = AtomicUsize::new(0);
    in_parallel(&zones, |(name, zone)| {
        for (turn, &transition) in transitions(zone).iter().enumerate() {
            let (from, until) = (transition - AROUND, transition + AROUND);
            let clock = SampledClock::new(zone, from, until);
            // The selection rotates with each transition, so that the whole pool is used.
            for pick in 0..3 {
                let raw = in_zone(&pool[(turn * 3 + pick) % pool.len()], name);
                let raw = if turn % 4 == 3 { with_overrides(raw, transition) } else { raw };
                compare(&raw, &clock, from, until);
                compared.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    print_uncaptured(&format!(
        "zones checked: {}, comparisons around their transitions: {}",
        zones.len(),
        compared.into_inner()
    ));
}

#[test]
fn pool_in_all_zones() {
    let (zones, pool) = (zones(), fixtures::pool());
    // The end of a year, a leap day, and DST changes in spring and autumn.
    let spans = ["2023-12-30", "2024-02-28", "2025-03-29", "2025-10-25"];
    in_parallel(&zones, |(name, zone)| {
        for span in spans {
            let from = format!("{span}T00:00:00Z").parse::<Timestamp>().unwrap().as_second();
            let until = from + 3 * DAY;
            let clock = SampledClock::new(zone, from, until);
            for raw in &pool {
                compare(&in_zone(raw, name), &clock, from, until);
            }
        }
    });
    print_uncaptured(&format!("zones checked: {}, each with {} schedules", zones.len(), pool.len()));
}

/// Unusual transitions: skipped days, half-hour changes, offsets with seconds.
const UNUSUAL: [(&str, &str); 14] = [
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Pacific/Fakaofo", "2011-12-30T11:00:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),
    ("Pacific/Kwajalein", "1969-09-30T13:00:00Z"),
    ("Pacific/Kiritimati", "1994-12-31T10:40:00Z"),
    ("America/Juneau", "1867-10-18T15:33:32Z"),
    ("Asia/Manila", "1844-12-31T00:00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00Z"),
    ("America/Caracas", "2016-05-01T07:00:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
];

#[test]
fn pool_at_unusual_transitions() {
    let pool = fixtures::pool();
    in_parallel(&UNUSUAL, |(name, at)| {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let at = at.parse::<Timestamp>().unwrap().as_second();
        let (from, until) = (at - 2 * AROUND, at + 2 * AROUND);
        let clock = SampledClock::new(&zone, from, until);
        for raw in &pool {
            let raw = in_zone(raw, name);
            compare(&raw, &clock, from, until);
            compare(&with_overrides(raw, at), &clock, from, until);
        }
    });
}

/// A zone and an instant between 1970 and 2040, mostly close to a transition.
fn zone_and_instant() -> impl Strategy<Value = (String, i64)> {
    let zones: Vec<_> = zones().into_iter().map(|(name, zone)| (name, transitions(&zone))).collect();
    let unusual: Vec<_> =
        UNUSUAL.iter().map(|(name, at)| ((*name).to_owned(), at.parse::<Timestamp>().unwrap().as_second())).collect();
    prop_oneof![
        9 => (prop::sample::select(zones), any::<prop::sample::Index>(), 0..2_208_988_800_i64, -DAY..DAY, 0..3).prop_map(
            |((name, transitions), pick, anywhere, off, kind)| {
                let modern: Vec<_> = transitions.into_iter().filter(|at| *at > 0).collect();
                if kind == 0 || modern.is_empty() { (name, anywhere) } else { (name, *pick.get(&modern) + off) }
            }
        ),
        1 => prop::sample::select(unusual),
    ]
}

fn any_schedule() -> impl Strategy<Value = (RawSchedule, i64)> {
    (fixtures::base(), zone_and_instant()).prop_flat_map(|(base, (zone, at))| {
        fixtures::overrides(at)
            .prop_map(move |overrides| (RawSchedule { zone: zone.clone(), overrides, ..base.clone() }, at))
    })
}

/// Drops overrides that end before they start, which the engine rejects.
fn keep_ordered(raw: RawSchedule, clock: &SampledClock) -> RawSchedule {
    let ordered = |entry: &(String, String, bool)| model::edge(&entry.0, clock) < model::edge(&entry.1, clock);
    RawSchedule { overrides: raw.overrides.into_iter().filter(ordered).collect(), ..raw }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_schedules((raw, at) in any_schedule()) {
        let zone = TimeZoneDatabase::bundled().get(&raw.zone).unwrap();
        let (from, until) = (at - 3 * DAY, at + 4 * DAY);
        let clock = SampledClock::new(&zone, from, until);
        compare(&keep_ordered(raw, &clock), &clock, from, until);
    }
}
