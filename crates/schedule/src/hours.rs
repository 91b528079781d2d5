//! Sets of hours, and the parser of `hoursOfDay`.

use crate::error::Fault;
use crate::scan::{Scanner, wrapping_list};

/// A set of the day's 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hours(u32);

impl Hours {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self((1 << 24) - 1);

    /// The hours whose bits are set in `bits`.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Parses one entry: `9`, `9-17` (both ends included), `22-6` (wraps around midnight), `0-9,17-23`.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        wrapping_list(text, 24, "a comma, or a dash and an hour (9-17)", hour).map(Self)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn inverse(self) -> Self {
        Self::from_bits(!self.0)
    }

    pub(crate) fn contains(self, hour: u32) -> bool {
        self.0 >> hour & 1 == 1
    }

    /// The earliest hour of the set that is `hour` or later.
    pub(crate) fn first_from(self, hour: u32) -> Option<u32> {
        let later = Self::from_bits(self.0 >> hour << hour);
        (later != Self::NONE).then(|| later.0.trailing_zeros())
    }

    /// The latest hour of the set that is before `hour`.
    pub(crate) fn last_before(self, hour: u32) -> Option<u32> {
        (self.0 & ((1 << hour) - 1)).checked_ilog2()
    }
}

fn hour(scanner: &mut Scanner<'_>) -> Result<u32, Fault> {
    scanner.small_number("hour", 0, 23)?.ok_or_else(|| scanner.expected("an hour (0 to 23)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    fn hours(text: &str) -> Vec<u32> {
        let set = Hours::parse(text).unwrap();
        (0..24).filter(|&hour| set.contains(hour)).collect()
    }

    #[test]
    fn ranges_include_both_ends() {
        assert_eq!(hours("9-17"), (9..=17).collect::<Vec<_>>());
        assert_eq!(hours("9"), [9]);
        assert_eq!(hours("9-9"), [9]);
        assert_eq!(hours("09-10"), [9, 10]);
        assert_eq!(hours("0-1,22-23,12"), [0, 1, 12, 22, 23]);
    }

    #[test]
    fn ranges_wrap_around_midnight() {
        assert_eq!(hours("22-6"), [0, 1, 2, 3, 4, 5, 6, 22, 23]);
        assert_eq!(hours("23-0"), [0, 23]);
        assert_eq!(hours("10-9").len(), 24);
    }

    #[test]
    fn invalid_hours_are_rejected_with_position() {
        for (text, position) in [
            ("", 0),
            ("24", 0),
            ("9-25", 2),
            ("9-", 2),
            ("-9", 0),
            ("9 - 17", 1),
            ("9,", 2),
            ("9am", 1),
            ("009", 0),
            ("9-17-20", 4),
            ("18446744073709551616", 0),
            ("٣", 0),
        ] {
            assert_eq!(Hours::parse(text).unwrap_err().position, position, "{text:?}");
        }
        assert!(matches!(Hours::parse("009").unwrap_err().reason, Reason::TooManyDigits { .. }));
    }
}
