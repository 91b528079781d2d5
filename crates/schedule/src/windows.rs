//! Iteration over the windows of a time span.

use jiff::Timestamp;

use crate::schedule::Schedule;

/// A time span during which a schedule is open, half-open: `close` is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start of the window, inclusive.
    pub open: Timestamp,
    /// End of the window, exclusive.
    pub close: Timestamp,
}

impl Schedule {
    /// Returns the windows between `from` (inclusive) and `until` (exclusive), in order and clipped to that span.
    ///
    /// The windows are disjoint and maximal: the schedule is closed between two of them. The iterator is lazy, so the span may
    /// contain more windows than fit into memory.
    pub fn windows(&self, from: Timestamp, until: Timestamp) -> impl Iterator<Item = Window> + '_ {
        Windows::new(self, from, until)
    }
}

/// Lazy iterator behind [`Schedule::windows`].
pub(crate) struct Windows<'a> {
    schedule: &'a Schedule,
    /// Windows before this instant have been returned.
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
