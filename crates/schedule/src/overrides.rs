//! Spans in which a schedule is open, or closed, whatever its base says.

use jiff::Timestamp;

/// A span as one entry asks for it: half-open, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) active: bool,
}

/// What all entries together say: disjoint spans in order, each with one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides(Vec<Span>);

impl Overrides {
    /// Lays the entries over each other, later ones on top.
    pub(crate) fn flatten(entries: &[Span]) -> Self {
        let mut edges: Vec<_> = entries.iter().flat_map(|entry| [entry.from, entry.until]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut spans: Vec<Span> = Vec::new();
        for (&from, &until) in edges.iter().zip(edges.iter().skip(1)) {
            let Some(top) = entries.iter().rev().find(|entry| entry.from <= from && until <= entry.until) else {
                continue;
            };
            match spans.last_mut() {
                Some(last) if last.until == from && last.active == top.active => last.until = until,
                Some(_) | None => spans.push(Span { from, until, active: top.active }),
            }
        }
        Self(spans)
    }

    /// The span that an instant is in.
    pub(crate) fn at(&self, at: Timestamp) -> Option<&Span> {
        self.0.get(self.index_after(at).checked_sub(1)?).filter(|span| at < span.until || span.end().is_none())
    }

    /// The start of the first span after an instant.
    pub(crate) fn next_start(&self, after: Timestamp) -> Option<Timestamp> {
        self.0.get(self.index_after(after)).map(|span| span.from)
    }

    fn index_after(&self, at: Timestamp) -> usize {
        self.0.partition_point(|span| span.from <= at)
    }
}

impl Span {
    /// The first instant after the span; `None` if it ends where time does.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        (self.until < Timestamp::MAX).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, until: i64, active: bool) -> Span {
        Span { from: Timestamp::from_second(from).unwrap(), until: Timestamp::from_second(until).unwrap(), active }
    }

    #[test]
    fn later_entries_lie_on_top_of_earlier_ones() {
        let flat = Overrides::flatten(&[span(0, 100, true), span(20, 40, false), span(30, 35, true)]);
        let expected =
            [span(0, 20, true), span(20, 30, false), span(30, 35, true), span(35, 40, false), span(40, 100, true)];
        assert_eq!(flat.0, expected);
    }

    #[test]
    fn an_earlier_entry_does_not_show_through_a_later_one() {
        assert_eq!(Overrides::flatten(&[span(20, 40, false), span(0, 100, true)]).0, [span(0, 100, true)]);
    }

    #[test]
    fn entries_that_touch_and_agree_are_one_span() {
        assert_eq!(Overrides::flatten(&[span(10, 20, true), span(0, 10, true)]).0, [span(0, 20, true)]);
    }

    #[test]
    fn a_span_is_half_open() {
        let overrides = Overrides::flatten(&[span(10, 20, true)]);
        let active = |second| overrides.at(Timestamp::from_second(second).unwrap()).map(|span| span.active);
        assert_eq!([9, 10, 19, 20].map(active), [None, Some(true), Some(true), None]);
    }
}
