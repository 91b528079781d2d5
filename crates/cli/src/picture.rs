//! Draws days as rows of half hours.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use fivespot_schedule::Schedule;
use jiff::{SignedDuration, Timestamp};

use crate::output::{length, local};
use crate::subject::Subject;
use crate::timeline::Day;

const CELLS: usize = 48;
/// Every third hour, over its column.
const SCALE: &str = "0     3     6     9     12    15    18    21    24";
const CELL_MINUTES: usize = 30;
const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const A_DAY: SignedDuration = SignedDuration::from_hours(24);

/// The characters of a picture.
#[derive(Debug)]
pub(crate) struct Glyphs {
    open: char,
    partly: char,
    closed: char,
    now: char,
}

impl Glyphs {
    /// For terminals that have them.
    pub(crate) const BLOCKS: Glyphs = Glyphs { open: '█', partly: '▌', closed: '·', now: '◆' };
    /// For all others.
    pub(crate) const ASCII: Glyphs = Glyphs { open: '#', partly: '+', closed: '.', now: '@' };

    fn of(&self, cell: Cell) -> char {
        match cell {
            Cell { now: true, .. } => self.now,
            Cell { there, .. } if there.is_zero() => ' ',
            Cell { open, .. } if open.is_zero() => self.closed,
            Cell { there, open, .. } if there == open => self.open,
            Cell { .. } => self.partly,
        }
    }
}

/// Half an hour of the wall clock on one day.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    /// How long the wall clock was in it: not at all where it skipped it, an hour where it went through twice.
    there: SignedDuration,
    /// How long of that the schedule was open.
    open: SignedDuration,
    now: bool,
}

/// Some days of a machine, seen from now.
pub(crate) struct Picture<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) days: &'a [Day],
    pub(crate) glyphs: Glyphs,
    pub(crate) now: Timestamp,
}

impl Picture<'_> {
    /// Draws the days, with a head, a legend and what happens next.
    pub(crate) fn draw(&self, out: &mut dyn Write) -> io::Result<()> {
        let Picture { subject, days, now, .. } = self;
        let total: SignedDuration = days.iter().map(Day::open).sum();
        let disabled = if subject.enabled { "" } else { ", disabled" };
        writeln!(out, "{} ({}{disabled}), open {}", subject.name, subject.timezone, length(total))?;
        writeln!(out, "{:12}{SCALE}", "")?;
        for day in *days {
            let date = day.date.strftime("%a %d %b").to_string();
            writeln!(out, "{date:12}{}  {}", self.row(day), note(day))?;
        }
        let Glyphs { open, partly, closed, now: here } = &self.glyphs;
        write!(out, "{:12}{open} open  {partly} partly  {closed} closed", "")?;
        // What happens next belongs to a picture of the present; another week is just itself.
        if days.iter().any(|day| day.start <= *now && *now < day.end) {
            write!(out, "  {here} now\n{}", next(&subject.schedule, *now))?;
        }
        writeln!(out)
    }

    fn row(&self, day: &Day) -> String {
        let green = Style::new().fg_color(Some(AnsiColor::Green.into()));
        let mut row = String::new();
        let mut coloured = false;
        for cell in cells(&self.subject.schedule, day, self.now) {
            let lit = !cell.open.is_zero() && !cell.now;
            if lit != coloured {
                row.push_str(&if lit { green.render().to_string() } else { green.render_reset().to_string() });
                coloured = lit;
            }
            row.push(self.glyphs.of(cell));
        }
        if coloured {
            row.push_str(&green.render_reset().to_string());
        }
        row
    }
}

/// Goes through the day minute by minute and asks the wall clock which cell each is in, so that an hour that is skipped
/// or repeated is drawn where it is read.
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
            cell.there += next.duration_since(at);
            cell.now |= at <= now && now < next;
            // Windows that end within the minute are done with; the one that goes on is looked at again.
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

fn note(day: &Day) -> String {
    let real = day.end.duration_since(day.start);
    let odd = if real == A_DAY { String::new() } else { format!(" (a day of {})", length(real)) };
    format!("{:>6}{odd}", length(day.open()))
}

/// What happens next, seen from now.
fn next(schedule: &Schedule, now: Timestamp) -> String {
    let zone = schedule.time_zone();
    match (schedule.is_open(now), schedule.next_change(now)) {
        (true, Some(close)) => format!("open now, closes {}", local(close, zone)),
        (true, None) => "open now, and it never closes".to_owned(),
        (false, Some(open)) => format!("closed now, opens {}", local(open, zone)),
        (false, None) => "closed now, and it never opens".to_owned(),
    }
}
