//! The engine against a model that watches the wall clock minute by minute, in every zone of the database.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod model;
mod written;

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use fivespot_schedule::{Schedule, Window};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use model::{Meaning, Watched, Written};
use proptest::prelude::*;

const DAY: i64 = 86_400;

/// The model watches this long before and after what is looked at.
const AROUND: i64 = 3 * DAY / 2;

/// Transitions after this year repeat a rule that was seen at work before.
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

/// Says how much was looked at; the test runner keeps to itself what a passing test prints in the usual way.
#[allow(clippy::explicit_write, reason = "the print macros are captured")]
fn tell(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

fn second(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap()
}

/// Compares everything the engine says about a span with the model.
fn compare(written: &Written, watched: &Watched, from: i64, until: i64) {
    let schedule = written::parse(written);
    let meaning = Meaning::new(written, watched);
    let windows: Vec<Window> = schedule.windows(second(from), second(until)).collect();
    let context = |at: Timestamp| format!("{written:?} at {at}, windows {windows:?}");

    let in_span = |at: i64| from <= at && at < until;
    let mut remaining = windows.iter().peekable();
    for (index, tick) in watched.ticks().iter().filter(|tick| in_span(tick.at)).enumerate() {
        let at = second(tick.at);
        while remaining.next_if(|window| window.close <= at).is_some() {}
        let open = remaining.peek().is_some_and(|window| window.open <= at);
        assert_eq!(open, meaning.is_open_at(*tick), "{}", context(at));
        if index % 97 == 0 {
            assert_eq!(schedule.is_open(at), open, "{}", context(at));
        }
    }
    for edge in windows.iter().flat_map(|window| [window.open, window.close]) {
        if edge == second(from) || edge == second(until) {
            continue;
        }
        let before = edge.checked_sub(jiff::SignedDuration::from_nanos(1)).unwrap();
        assert_ne!(meaning.is_open(before), meaning.is_open(edge), "{}", context(edge));
        for at in [before, edge] {
            assert_eq!(schedule.is_open(at), meaning.is_open(at), "{}", context(at));
        }
    }
    check_next_change(&schedule, &windows, from, until);
}

/// The next change, from a few instants, is the next edge of the windows that were found.
fn check_next_change(schedule: &Schedule, windows: &[Window], from: i64, until: i64) {
    let edges: Vec<_> = windows.iter().flat_map(|window| [window.open, window.close]).collect();
    for part in 0..4 {
        let at = second(from + (until - from) * part / 4 + part);
        let expected = edges.iter().find(|edge| **edge > at && **edge < second(until));
        let found = schedule.next_change(at).filter(|change| *change < second(until));
        assert_eq!(found.as_ref(), expected, "{schedule:?} after {at}");
    }
}

fn in_zone(written: &Written, name: &str) -> Written {
    Written { zone: name.to_owned(), ..written.clone() }
}

/// Holidays and extra hours whose edges fall on the transition, and on the local dates around it.
fn with_overrides(written: Written, transition: i64) -> Written {
    let instant = |off: i64| second(transition + off).to_string();
    let date = |off: i64| instant(off)[..10].to_owned();
    let overrides = vec![
        (date(-DAY), date(DAY), true),
        (instant(-3600), instant(1800), false),
        (date(DAY), instant(DAY * 2 + 17), false),
    ];
    Written { overrides: overrides.into_iter().filter(|(from, until, _)| from < until).collect(), ..written }
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
fn every_transition_of_every_zone_agrees_with_the_model() {
    let (zones, pool) = (zones(), written::pool());
    let compared = AtomicUsize::new(0);
    in_parallel(&zones, |(name, zone)| {
        for (turn, &transition) in transitions(zone).iter().enumerate() {
            let (from, until) = (transition - AROUND, transition + AROUND);
            let watched = Watched::new(zone, from, until);
            // The picks move on with each transition, so that the whole pool comes round.
            for pick in 0..3 {
                let written = in_zone(&pool[(turn * 3 + pick) % pool.len()], name);
                let written = if turn % 4 == 3 { with_overrides(written, transition) } else { written };
                compare(&written, &watched, from, until);
                compared.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    tell(&format!("zones checked: {}, comparisons around their transitions: {}", zones.len(), compared.into_inner()));
}

#[test]
fn every_schedule_of_the_pool_agrees_with_the_model_in_every_zone() {
    let (zones, pool) = (zones(), written::pool());
    // A year's end, a leap day, and the first hours of a spring and an autumn weekend.
    let spans = ["2023-12-30", "2024-02-28", "2025-03-29", "2025-10-25"];
    in_parallel(&zones, |(name, zone)| {
        for span in spans {
            let from = format!("{span}T00:00:00Z").parse::<Timestamp>().unwrap().as_second();
            let until = from + 3 * DAY;
            let watched = Watched::new(zone, from, until);
            for written in &pool {
                compare(&in_zone(written, name), &watched, from, until);
            }
        }
    });
    tell(&format!("zones checked: {}, each with {} schedules", zones.len(), pool.len()));
}

/// Places and years where something rare happened to the clock.
const RARE: [(&str, &str); 14] = [
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
fn every_schedule_of_the_pool_agrees_with_the_model_where_clocks_did_rare_things() {
    let pool = written::pool();
    in_parallel(&RARE, |(name, at)| {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let at = at.parse::<Timestamp>().unwrap().as_second();
        let (from, until) = (at - 2 * AROUND, at + 2 * AROUND);
        let watched = Watched::new(&zone, from, until);
        for written in &pool {
            let written = in_zone(written, name);
            compare(&written, &watched, from, until);
            compare(&with_overrides(written, at), &watched, from, until);
        }
    });
}

/// A zone and an instant between 1970 and 2040, more often than not close to a transition.
fn place_and_time() -> impl Strategy<Value = (String, i64)> {
    let zones: Vec<_> = zones().into_iter().map(|(name, zone)| (name, transitions(&zone))).collect();
    let rare: Vec<_> =
        RARE.iter().map(|(name, at)| ((*name).to_owned(), at.parse::<Timestamp>().unwrap().as_second())).collect();
    prop_oneof![
        9 => (prop::sample::select(zones), any::<prop::sample::Index>(), 0..2_208_988_800_i64, -DAY..DAY, 0..3).prop_map(
            |((name, transitions), pick, anywhere, off, kind)| {
                let modern: Vec<_> = transitions.into_iter().filter(|at| *at > 0).collect();
                if kind == 0 || modern.is_empty() { (name, anywhere) } else { (name, *pick.get(&modern) + off) }
            }
        ),
        1 => prop::sample::select(rare),
    ]
}

fn anything() -> impl Strategy<Value = (Written, i64)> {
    (written::base(), place_and_time()).prop_flat_map(|(base, (zone, at))| {
        written::overrides(at)
            .prop_map(move |overrides| (Written { zone: zone.clone(), overrides, ..base.clone() }, at))
    })
}

/// Drops the overrides that end before they start: the engine refuses those, as other tests show.
fn keep_ordered(written: Written, watched: &Watched) -> Written {
    let ordered = |entry: &(String, String, bool)| model::edge(&entry.0, watched) < model::edge(&entry.1, watched);
    Written { overrides: written.overrides.into_iter().filter(ordered).collect(), ..written }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_anywhere_agrees_with_the_model((written, at) in anything()) {
        let zone = TimeZoneDatabase::bundled().get(&written.zone).unwrap();
        let (from, until) = (at - 3 * DAY, at + 4 * DAY);
        let watched = Watched::new(&zone, from, until);
        compare(&keep_ordered(written, &watched), &watched, from, until);
    }
}
