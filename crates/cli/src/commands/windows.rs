//! `kubectl 5spot windows`: lists the windows of a schedule.

use std::io::{self, Write};

use clap::Args;
use fivespot_cli_support::{Failure, printable};
use fivespot_schedule::Window;
use jiff::{SignedDuration, Timestamp};

use crate::render::{Format, WindowJson, length, local, print, print_json_list};
use crate::target::{Target, TargetArguments};

/// Length of the time span without `--until`.
const DEFAULT_SPAN: SignedDuration = SignedDuration::from_hours(7 * 24);

const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// List the windows of a schedule
///
/// A window is a time span during which the machine is part of the cluster. The list shows the schedule only, even if the
/// schedule is disabled or the kill switch is active.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot windows dev-workstation-01
  kubectl 5spot windows -f machine.yaml --from 2026-12-20 --until 2027-01-10
  kubectl 5spot windows -f machine.yaml --from 2026-12-24T00:00:00Z -o json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,

    /// Start of the time span: an RFC 3339 timestamp, or a date in the time zone of the schedule [default: now]
    #[arg(long, value_name = "T")]
    from: Option<String>,

    /// End of the time span, exclusive, in the same format [default: a week after --from]
    #[arg(long, value_name = "T")]
    until: Option<String>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The requested time span.
struct Span {
    from: Timestamp,
    until: Timestamp,
}

pub(crate) fn run(arguments: &Arguments, now: Timestamp) -> Result<(), Failure> {
    let target = arguments.target.load()?;
    let span = span(arguments, &target, now)?;
    match arguments.output {
        Format::Json => print_json_list(target.schedule.windows(span.from, span.until).map(WindowJson::from)),
        Format::Text => print(|out| write_text(out, &target, &span)),
    }
}

fn span(arguments: &Arguments, target: &Target, now: Timestamp) -> Result<Span, Failure> {
    let from = arguments.from.as_deref().map_or(Ok(now), |text| target.parse_instant("--from", text))?;
    let until = match arguments.until.as_deref() {
        Some(text) => target.parse_instant("--until", text)?,
        None => from.saturating_add(DEFAULT_SPAN).unwrap_or(Timestamp::MAX),
    };
    if until <= from {
        return Err(Failure::bad_input(format!("--until {until} must be later than --from {from}")));
    }
    Ok(Span { from, until })
}

/// Iterates over the windows twice, first for the column widths, because they may not fit into memory.
fn write_text(out: &mut dyn Write, target: &Target, span: &Span) -> io::Result<()> {
    let zone = target.schedule.time_zone();
    let windows = || target.schedule.windows(span.from, span.until);
    let disabled = if target.enabled { "" } else { ", disabled: the controller ignores these windows" };
    writeln!(out, "{} ({}{disabled})", printable(&target.name), target.timezone)?;
    let Some(first) = windows().next() else {
        let next = match target.schedule.next_opening(span.from) {
            Some(next) => format!("the next window opens {}", local(next, zone)),
            None => "there is no later window".to_owned(),
        };
        return writeln!(out, "no windows between {} and {}; {next}", local(span.from, zone), local(span.until, zone));
    };
    let width = |end: fn(Window) -> Timestamp| windows().map(|it| local(end(it), zone).len()).max().unwrap_or_default();
    let (opens, closes) = (width(|it| it.open), width(|it| it.close));
    writeln!(out, "{:opens$}  {:closes$}  LENGTH", "OPENS", "CLOSES")?;
    let (mut count, mut total, mut last) = (0_u64, SignedDuration::ZERO, first);
    for window in windows() {
        let duration = window.close.duration_since(window.open);
        writeln!(
            out,
            "{:opens$}  {:closes$}  {}",
            local(window.open, zone),
            local(window.close, zone),
            length(duration)
        )?;
        (count, total, last) = (count + 1, total.saturating_add(duration), window);
    }
    writeln!(out, "{count} window{}, {} in all", if count == 1 { "" } else { "s" }, length(total))?;
    let was_open = || span.from.checked_sub(NANOSECOND).is_ok_and(|before| target.schedule.is_open(before));
    if first.open == span.from && was_open() {
        writeln!(out, "the first window opened before the time span")?;
    }
    if last.close == span.until && target.schedule.is_open(span.until) {
        writeln!(out, "the last window continues after the time span")?;
    }
    Ok(())
}
