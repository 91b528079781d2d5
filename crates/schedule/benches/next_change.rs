//! Benchmarks of parsing and of the queries, on realistic and on degenerate schedules.

use std::hint::black_box;

use divan::Bencher;
use fivespot_schedule::{OverrideSource, Schedule, Source};
use jiff::Timestamp;

fn main() {
    divan::main();
}

/// A Wednesday morning in New York.
const NOW: Timestamp = Timestamp::constant(1_781_091_000, 0);

const NAMES: [&str; 13] = [
    "days and hours, open",
    "days and hours, closed",
    "cron",
    "cron and duration, open",
    "cron and duration, closed",
    "cron and duration, a window of many firings",
    "256 overrides",
    "leap day",
    "never opens",
    "always open",
    "always open by firings",
    "open until the clock is turned back",
    "only in hours that are skipped",
];

fn schedule(name: &str) -> Schedule {
    let days = ["mon-fri".to_owned()];
    let (day, night) = (["5-17".to_owned()], ["20-22".to_owned()]);
    let all = ["0-23".to_owned()];
    let base = Source { timezone: "America/New_York", ..Source::default() };
    let cron = |cron, duration| Source { cron: Some(cron), duration, ..base.clone() };
    let minutes: Vec<_> = if name == "256 overrides" { (0..512).map(minute).collect() } else { Vec::new() };
    let source = match name {
        "days and hours, open" => Source { days_of_week: &days, hours_of_day: &day, ..base },
        "days and hours, closed" => Source { days_of_week: &days, hours_of_day: &night, ..base },
        "cron" => cron("0 9-17 * * 1-5", None),
        "cron and duration, open" => cron("30 4 * * 1-5", Some("9h")),
        "cron and duration, closed" => cron("30 22 * * 1-5", Some("9h")),
        "cron and duration, a window of many firings" => cron("* 5-17 * * 1-5", Some("1m")),
        "256 overrides" => Source {
            days_of_week: &days,
            hours_of_day: &day,
            // All agree with the base schedule, so the search has to pass every one of them.
            overrides: minutes
                .chunks(2)
                .map(|pair| OverrideSource { from: &pair[0], until: &pair[1], active: true })
                .collect(),
            ..base
        },
        "leap day" => cron("0 0 29 2 *", None),
        "never opens" => cron("0 0 30 2 *", None),
        "always open" => Source { hours_of_day: &all, ..base },
        "always open by firings" => cron("* * * * *", Some("24h")),
        "open until the clock is turned back" => cron("0 * * * *", Some("1h")),
        "only in hours that are skipped" => cron("0 2 8-14 3 */7", None),
        _ => unreachable!("no such schedule: {name}"),
    };
    Schedule::parse(&source).expect("the benchmark's schedules are valid")
}

fn minute(number: i64) -> String {
    (NOW + jiff::SignedDuration::from_mins(number)).to_string()
}

#[divan::bench(args = NAMES)]
fn next_change(bencher: Bencher<'_, '_>, name: &str) {
    let schedule = schedule(name);
    bencher.bench(|| schedule.next_change(black_box(NOW)));
}

#[divan::bench(args = NAMES)]
fn is_open(bencher: Bencher<'_, '_>, name: &str) {
    let schedule = schedule(name);
    bencher.bench(|| schedule.is_open(black_box(NOW)));
}

#[divan::bench(args = NAMES)]
fn parse(bencher: Bencher<'_, '_>, name: &str) {
    bencher.bench(|| schedule(black_box(name)));
}

#[divan::bench(args = ["days and hours, open", "cron and duration, open"])]
fn windows_of_a_year(bencher: Bencher<'_, '_>, name: &str) {
    let schedule = schedule(name);
    let until = NOW + jiff::SignedDuration::from_hours(365 * 24);
    bencher.bench(|| schedule.windows(black_box(NOW), until).count());
}
