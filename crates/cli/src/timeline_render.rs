//! Renders the timeline: a row per day, and a column per half hour of local time.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use fivespot_cli_support::printable;
use fivespot_schedule::{Schedule, Window};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use crate::render::{length, local};
use crate::target::Target;

const CELLS: usize = 48;
/// Labels every third hour.
const SCALE: &str = "0     3     6     9     12    15    18    21    24";
const CELL_MINUTES: usize = 30;
const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const A_DAY: SignedDuration = SignedDuration::from_hours(24);

/// A local day of a schedule.
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
        self.windows.iter().map(|window| window.close.duration_since(window.open)).sum()
    }
}

/// The characters of a timeline.
#[derive(Debug)]
pub(crate) struct Glyphs {
    open: char,
    partly_open: char,
    closed: char,
    now: char,
}

impl Glyphs {
    pub(crate) const BLOCKS: Glyphs = Glyphs { open: '█', partly_open: '▌', closed: '·', now: '◆' };
    pub(crate) const ASCII: Glyphs = Glyphs { open: '#', partly_open: '+', closed: '.', now: '@' };

    fn of(&self, cell: Cell) -> char {
        match cell {
            Cell { now: true, .. } => self.now,
            Cell { elapsed, .. } if elapsed.is_zero() => ' ',
            Cell { open, .. } if open.is_zero() => self.closed,
            Cell { elapsed, open, .. } if elapsed == open => self.open,
            Cell { .. } => self.partly_open,
        }
    }
}

/// Half an hour of local time on one day.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    /// Elapsed time in the cell: zero if the half hour is skipped, an hour if it is repeated.
    elapsed: SignedDuration,
    /// The part of the elapsed time during which the schedule is open.
    open: SignedDuration,
    /// Whether the cell contains the current time.
    now: bool,
}

/// The timeline of a schedule over some days.
pub(crate) struct Timeline<'a> {
    pub(crate) target: &'a Target,
    pub(crate) days: &'a [Day],
    pub(crate) glyphs: Glyphs,
    pub(crate) now: Timestamp,
}

impl Timeline<'_> {
    /// Renders the days with a header and a legend, and the next change if the days include the current time.
    pub(crate) fn render(&self, out: &mut dyn Write) -> io::Result<()> {
        let Timeline { target, days, now, .. } = self;
        let total: SignedDuration = days.iter().map(Day::open).sum();
        let disabled = if target.enabled { "" } else { ", disabled" };
        writeln!(out, "{} ({}{disabled}), open {}", printable(&target.name), target.timezone, length(total))?;
        writeln!(out, "{:12}{SCALE}", "")?;
        for day in *days {
            let date = day.date.strftime("%a %d %b").to_string();
            writeln!(out, "{date:12}{}  {}", self.row(day), day_summary(day))?;
        }
        let Glyphs { open, partly_open, closed, now: here } = &self.glyphs;
        write!(out, "{:12}{open} open  {partly_open} partly  {closed} closed", "")?;
        if days.iter().any(|day| day.start <= *now && *now < day.end) {
            write!(out, "  {here} now\n{}", next_change(&target.schedule, *now))?;
        }
        writeln!(out)
    }

    fn row(&self, day: &Day) -> String {
        let green = Style::new().fg_color(Some(AnsiColor::Green.into()));
        let mut row = String::new();
        let mut is_green = false;
        for cell in cells(&self.target.schedule, day, self.now) {
            let is_open = !cell.open.is_zero() && !cell.now;
            if is_open != is_green {
                row.push_str(&if is_open { green.render().to_string() } else { green.render_reset().to_string() });
                is_green = is_open;
            }
            row.push(self.glyphs.of(cell));
        }
        if is_green {
            row.push_str(&green.render_reset().to_string());
        }
        row
    }
}

/// Assigns every minute of the day to the cell of its local time, so that skipped and repeated hours are rendered correctly.
fn cells(schedule: &Schedule, day: &Day, now: Timestamp) -> [Cell; CELLS] {
    let zone = schedule.time_zone();
    let mut cells = [Cell::default(); CELLS];
    let mut windows = day.windows.iter().peekable();
    let mut at = day.start;
    while at < day.end {
        let next = at.saturating_add(MINUTE).unwrap_or(day.end).min(day.end);
        let clock = zone.to_datetime(at);
        let minute = usize::try_from(clock.hour()).unwrap_or(0) * 60 + usize::try_from(clock.minute()).unwrap_or(0);
        if let Some(cell) = cells.get_mut(minute / CELL_MINUTES) {
            cell.elapsed += next.duration_since(at);
            cell.now |= at <= now && now < next;
            // A window that continues after this minute stays in the iterator.
            while let Some(window) = windows.next_if(|it| it.close <= next) {
                cell.open += window.close.duration_since(window.open.max(at));
            }
            if let Some(window) = windows.peek().filter(|it| it.open < next) {
                cell.open += next.duration_since(window.open.max(at));
            }
        }
        at = next;
    }
    cells
}

fn day_summary(day: &Day) -> String {
    let elapsed = day.end.duration_since(day.start);
    let dst_note = if elapsed == A_DAY { String::new() } else { format!(" (a day of {})", length(elapsed)) };
    format!("{:>6}{dst_note}", length(day.open()))
}

fn next_change(schedule: &Schedule, now: Timestamp) -> String {
    let zone = schedule.time_zone();
    match (schedule.is_open(now), schedule.next_change(now)) {
        (true, Some(close)) => format!("open now, closes {}", local(close, zone)),
        (true, None) => "open now, never closes".to_owned(),
        (false, Some(open)) => format!("closed now, opens {}", local(open, zone)),
        (false, None) => "closed now, never opens".to_owned(),
    }
}
