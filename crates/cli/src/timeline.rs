//! `kubectl 5spot timeline`: a week as a picture.

use clap::Args;
use fivespot_cli_support::Failure;
use fivespot_schedule::Window;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use serde::Serialize;

use crate::output::{Format, WindowJson, print, print_json};
use crate::picture::{Glyphs, Picture};
use crate::subject::{Subject, SubjectArguments};

/// Draw a week of a schedule in the terminal
///
/// A row is a day and a column half an hour of the schedule's own wall clock. It speaks of the schedule alone: a machine
/// that is disabled or killed has the same picture.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot timeline dev-workstation-01
  kubectl 5spot timeline -f machine.yaml --from 2026-12-21 --days 14")]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: SubjectArguments,

    /// First day: a date of the schedule's time zone, or an instant on it [default: today]
    #[arg(long, value_name = "T")]
    from: Option<String>,

    /// How many days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,

    /// Draw with ASCII characters alone
    #[arg(long)]
    ascii: bool,

    /// For people or for scripts
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One local day of a schedule.
#[derive(Debug)]
pub(crate) struct Day {
    pub(crate) date: Date,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) windows: Vec<Window>,
}

impl Day {
    /// How long the schedule is open on this day.
    pub(crate) fn open(&self) -> SignedDuration {
        self.windows.iter().map(|it| it.close.duration_since(it.open)).sum()
    }
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
    let subject = arguments.subject.find()?;
    let first = arguments.from.as_deref().map_or(Ok(now), |text| subject.moment("--from", text))?;
    let days = days(&subject, first, arguments.days)?;
    match arguments.output {
        Format::Json => print_json(&json(&subject, days)),
        Format::Text => {
            let glyphs = if arguments.ascii { Glyphs::ASCII } else { Glyphs::BLOCKS };
            print(|out| Picture { subject: &subject, days: &days, glyphs, now }.draw(out))
        }
    }
}

/// The local days from the one that `first` is on; a day that the zone skipped is not among them.
fn days(subject: &Subject, first: Timestamp, count: u16) -> Result<Vec<Day>, Failure> {
    let first = first.to_zoned(subject.schedule.time_zone().clone()).date();
    let beyond = || Failure::bad_input("--from: the calendar ends before these days do");
    let start_of = |date: Date| subject.moment("--from", &date.to_string());
    let mut days = Vec::new();
    for index in 0..i64::from(count) {
        let date = first.checked_add(index.days()).map_err(|_| beyond())?;
        let (start, end) = (start_of(date)?, start_of(date.tomorrow().map_err(|_| beyond())?)?);
        if start < end {
            days.push(Day { date, start, end, windows: subject.schedule.windows(start, end).collect() });
        }
    }
    Ok(days)
}

fn json(subject: &Subject, days: Vec<Day>) -> TimelineJson {
    TimelineJson {
        name: subject.name.clone(),
        timezone: subject.timezone.clone(),
        enabled: subject.enabled,
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
