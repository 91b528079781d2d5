//! Overrides: time spans that take precedence over the base schedule.

use jiff::Timestamp;

/// The span of one override: half-open, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) active: bool,
}

/// All overrides combined into disjoint spans, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides(Vec<Span>);

impl Overrides {
    /// Combines the entries; later entries take precedence over earlier ones.
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

    /// The span that contains `at`.
    pub(crate) fn at(&self, at: Timestamp) -> Option<&Span> {
        self.0.get(self.index_after(at).checked_sub(1)?).filter(|span| at < span.until || span.end().is_none())
    }

    /// The start of the first span after `after`.
    pub(crate) fn next_start(&self, after: Timestamp) -> Option<Timestamp> {
        self.0.get(self.index_after(after)).map(|span| span.from)
    }

    fn index_after(&self, at: Timestamp) -> usize {
        self.0.partition_point(|span| span.from <= at)
    }
}

impl Span {
    /// The end of the span, or `None` if it never ends.
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
    fn later_entries_take_precedence() {
        let flat = Overrides::flatten(&[span(0, 100, true), span(20, 40, false), span(30, 35, true)]);
        let expected =
            [span(0, 20, true), span(20, 30, false), span(30, 35, true), span(35, 40, false), span(40, 100, true)];
        assert_eq!(flat.0, expected);
    }

    #[test]
    fn covered_entry_has_no_effect() {
        assert_eq!(Overrides::flatten(&[span(20, 40, false), span(0, 100, true)]).0, [span(0, 100, true)]);
    }

    #[test]
    fn adjacent_equal_entries_merge() {
        assert_eq!(Overrides::flatten(&[span(10, 20, true), span(0, 10, true)]).0, [span(0, 20, true)]);
    }

    #[test]
    fn spans_are_half_open() {
        let overrides = Overrides::flatten(&[span(10, 20, true)]);
        let active = |second| overrides.at(Timestamp::from_second(second).unwrap()).map(|span| span.active);
        assert_eq!([9, 10, 19, 20].map(active), [None, Some(true), Some(true), None]);
    }
}
