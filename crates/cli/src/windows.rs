//! `kubectl 5spot windows`: when exactly.

use std::io::{self, Write};

use clap::Args;
use fivespot_entry::Failure;
use fivespot_schedule::Window;
use jiff::{SignedDuration, Timestamp};

use crate::output::{Format, WindowJson, length, local, print, print_json};
use crate::subject::{Subject, SubjectArguments};

/// How far ahead an answer looks that nobody gave an end.
const A_WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The shortest time that can be told apart.
const INSTANT: SignedDuration = SignedDuration::from_nanos(1);

/// List the windows of a schedule: when exactly the machine is in the cluster
///
/// It speaks of the schedule alone: a machine that is disabled or killed has the same windows.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot windows dev-workstation-01
  kubectl 5spot windows -f machine.yaml --from 2026-12-20 --until 2027-01-10
  kubectl 5spot windows -f machine.yaml --from 2026-12-24T00:00:00Z -o json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: SubjectArguments,

    /// First instant of the span: RFC 3339, or a date of the schedule's time zone [default: now]
    #[arg(long, value_name = "T")]
    from: Option<String>,

    /// First instant after the span, written alike [default: a week after --from]
    #[arg(long, value_name = "T")]
    until: Option<String>,

    /// For people or for scripts
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The span that is asked for.
struct Span {
    from: Timestamp,
    until: Timestamp,
}

pub(crate) fn run(arguments: &Arguments, now: Timestamp) -> Result<(), Failure> {
    let subject = arguments.subject.find()?;
    let span = span(arguments, &subject, now)?;
    let windows: Vec<Window> = subject.schedule.windows(span.from, span.until).collect();
    match arguments.output {
        Format::Json => print_json(&windows.into_iter().map(WindowJson::from).collect::<Vec<_>>()),
        Format::Text => print(|out| write_text(out, &subject, &span, &windows)),
    }
}

fn span(arguments: &Arguments, subject: &Subject, now: Timestamp) -> Result<Span, Failure> {
    let from = arguments.from.as_deref().map_or(Ok(now), |text| subject.moment("--from", text))?;
    let until = match arguments.until.as_deref() {
        Some(text) => subject.moment("--until", text)?,
        None => from.saturating_add(A_WEEK).unwrap_or(Timestamp::MAX),
    };
    if until <= from {
        return Err(Failure::bad_input(format!("--until {until} must be later than --from {from}")));
    }
    Ok(Span { from, until })
}

fn write_text(out: &mut dyn Write, subject: &Subject, span: &Span, windows: &[Window]) -> io::Result<()> {
    let zone = subject.schedule.time_zone();
    let disabled = if subject.enabled { "" } else { ", disabled: none of these will happen" };
    writeln!(out, "{} ({}{disabled})", subject.name, subject.timezone)?;
    if windows.is_empty() {
        let next = match subject.schedule.next_opening(span.from) {
            Some(next) => format!("the next opens {}", local(next, zone)),
            None => "none opens later either".to_owned(),
        };
        return writeln!(out, "no window from {} to {}; {next}", local(span.from, zone), local(span.until, zone));
    }
    let rows: Vec<[String; 3]> = windows
        .iter()
        .map(|it| [local(it.open, zone), local(it.close, zone), length(it.close.duration_since(it.open))])
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let (opens, closes) = (width(0), width(1));
    writeln!(out, "{:opens$}  {:closes$}  LENGTH", "OPENS", "CLOSES")?;
    for [open, close, length] in &rows {
        writeln!(out, "{open:opens$}  {close:closes$}  {length}")?;
    }
    let total = windows.iter().map(|it| it.close.duration_since(it.open)).sum::<SignedDuration>();
    writeln!(out, "{} window{}, {} in all", rows.len(), if rows.len() == 1 { "" } else { "s" }, length(total))?;
    let was_open = || span.from.checked_sub(INSTANT).is_ok_and(|before| subject.schedule.is_open(before));
    if windows.first().is_some_and(|it| it.open == span.from) && was_open() {
        writeln!(out, "the first one began before the span")?;
    }
    if windows.last().is_some_and(|it| it.close == span.until) && subject.schedule.is_open(span.until) {
        writeln!(out, "the last one goes on after the span")?;
    }
    Ok(())
}
