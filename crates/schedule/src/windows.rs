//! The windows of a span, one after the other.

use jiff::Timestamp;

use crate::schedule::Schedule;

/// A span in which a schedule is open: from `open` to just before `close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant of the window.
    pub open: Timestamp,
    /// The first instant after the window.
    pub close: Timestamp,
}

/// Walks a schedule's windows, each found only when asked for.
pub(crate) struct Windows<'a> {
    schedule: &'a Schedule,
    /// Everything before has been handed out.
    from: Timestamp,
    until: Timestamp,
}

impl<'a> Windows<'a> {
    pub(crate) fn new(schedule: &'a Schedule, from: Timestamp, until: Timestamp) -> Self {
        Self { schedule, from, until }
    }

    fn first_open(&self) -> Option<Timestamp> {
        let open = if self.schedule.is_open(self.from) { self.from } else { self.schedule.next_change(self.from)? };
        (open < self.until).then_some(open)
    }
}

impl Iterator for Windows<'_> {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        if self.from >= self.until {
            return None;
        }
        let Some(open) = self.first_open() else {
            self.from = self.until;
            return None;
        };
        let close = self.schedule.next_change(open).map_or(self.until, |close| close.min(self.until));
        self.from = close;
        Some(Window { open, close })
    }
}

impl std::iter::FusedIterator for Windows<'_> {}
