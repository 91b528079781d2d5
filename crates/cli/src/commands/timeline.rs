//! `kubectl 5spot timeline`: renders a schedule as a timeline.

use clap::Args;
use fivespot_cli_support::Failure;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};
use serde::Serialize;

use crate::render::{Format, WindowJson, print, print_json};
use crate::target::{Target, TargetArguments};
use crate::timeline_render::{Day, Glyphs, Timeline};

/// Show a schedule as a timeline
///
/// Each row is a day, and each column is half an hour in the time zone of the schedule. The timeline shows the schedule only,
/// even if the schedule is disabled or the kill switch is active.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot timeline dev-workstation-01
  kubectl 5spot timeline -f machine.yaml --from 2026-12-21 --days 14")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,

    /// First day: a date in the time zone of the schedule, or an RFC 3339 timestamp [default: today]
    #[arg(long, value_name = "T")]
    from: Option<String>,

    /// Number of days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,

    /// Use ASCII characters only
    #[arg(long)]
    ascii: bool,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimelineJson {
    name: String,
    timezone: String,
    enabled: bool,
    days: Vec<DayJson>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DayJson {
    date: String,
    start: String,
    end: String,
    open_seconds: i64,
    windows: Vec<WindowJson>,
}

pub(crate) fn run(arguments: &Arguments, now: Timestamp) -> Result<(), Failure> {
    let target = arguments.target.load()?;
    let first = arguments.from.as_deref().map_or(Ok(now), |text| target.parse_instant("--from", text))?;
    let days = days(&target, first, arguments.days)?;
    match arguments.output {
        Format::Json => print_json(&json(&target, days)),
        Format::Text => {
            let glyphs = if arguments.ascii { Glyphs::ASCII } else { Glyphs::BLOCKS };
            print(|out| Timeline { target: &target, days: &days, glyphs, now }.render(out))
        }
    }
}

/// The local days starting with the day of `first`. Days that the time zone skips are omitted.
fn days(target: &Target, first: Timestamp, count: u16) -> Result<Vec<Day>, Failure> {
    let first = first.to_zoned(target.schedule.time_zone().clone()).date();
    let beyond = || Failure::bad_input("--from: the last day must not be later than 9999-12-30");
    let start_of = |date: Date| target.parse_instant("--from", &date.to_string());
    let mut days = Vec::new();
    for index in 0..i64::from(count) {
        let date = first.checked_add(index.days()).map_err(|_| beyond())?;
        let (start, end) = (start_of(date)?, start_of(date.tomorrow().map_err(|_| beyond())?)?);
        if start < end {
            days.push(Day { date, start, end, windows: target.schedule.windows(start, end).collect() });
        }
    }
    Ok(days)
}

fn json(target: &Target, days: Vec<Day>) -> TimelineJson {
    TimelineJson {
        name: target.name.clone(),
        timezone: target.timezone.clone(),
        enabled: target.enabled,
        days: days
            .into_iter()
            .map(|day| DayJson {
                date: day.date.to_string(),
                start: day.start.to_string(),
                end: day.end.to_string(),
                open_seconds: day.open().as_secs(),
                windows: day.windows.into_iter().map(WindowJson::from).collect(),
            })
            .collect(),
    }
}
