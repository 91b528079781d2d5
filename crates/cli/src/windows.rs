//! `kubectl 5spot windows`: when exactly.

use std::io::{self, Write};

use clap::Args;
use fivespot_cli_support::Failure;
use fivespot_schedule::Window;
use jiff::{SignedDuration, Timestamp};

use crate::output::{Format, WindowJson, length, local, print, print_json_list};
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
    match arguments.output {
        Format::Json => print_json_list(subject.schedule.windows(span.from, span.until).map(WindowJson::from)),
        Format::Text => print(|out| write_text(out, &subject, &span)),
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

/// A span can hold more windows than memory does, so they are gone through twice and never kept: once for the widths.
fn write_text(out: &mut dyn Write, subject: &Subject, span: &Span) -> io::Result<()> {
    let zone = subject.schedule.time_zone();
    let windows = || subject.schedule.windows(span.from, span.until);
    let disabled = if subject.enabled { "" } else { ", disabled: none of these will happen" };
    writeln!(out, "{} ({}{disabled})", subject.name, subject.timezone)?;
    let Some(first) = windows().next() else {
        let next = match subject.schedule.next_opening(span.from) {
            Some(next) => format!("the next opens {}", local(next, zone)),
            None => "none opens later either".to_owned(),
        };
        return writeln!(out, "no window from {} to {}; {next}", local(span.from, zone), local(span.until, zone));
    };
    let width = |end: fn(Window) -> Timestamp| windows().map(|it| local(end(it), zone).len()).max().unwrap_or_default();
    let (opens, closes) = (width(|it| it.open), width(|it| it.close));
    writeln!(out, "{:opens$}  {:closes$}  LENGTH", "OPENS", "CLOSES")?;
    let (mut count, mut total, mut last) = (0_u64, SignedDuration::ZERO, first);
    for window in windows() {
        let took = window.close.duration_since(window.open);
        writeln!(out, "{:opens$}  {:closes$}  {}", local(window.open, zone), local(window.close, zone), length(took))?;
        (count, total, last) = (count + 1, total.saturating_add(took), window);
    }
    writeln!(out, "{count} window{}, {} in all", if count == 1 { "" } else { "s" }, length(total))?;
    let was_open = || span.from.checked_sub(INSTANT).is_ok_and(|before| subject.schedule.is_open(before));
    if first.open == span.from && was_open() {
        writeln!(out, "the first one began before the span")?;
    }
    if last.close == span.until && subject.schedule.is_open(span.until) {
        writeln!(out, "the last one goes on after the span")?;
    }
    Ok(())
}
