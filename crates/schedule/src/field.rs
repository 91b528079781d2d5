//! Paths of the fields of a schedule, for error messages.

use std::fmt;

/// A field of `spec.schedule`. Displayed as its path: `cron`, `daysOfWeek[1]`, `overrides[3].from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `daysOfWeek`, or one of its entries.
    DaysOfWeek(Option<usize>),
    /// `hoursOfDay`, or one of its entries.
    HoursOfDay(Option<usize>),
    /// `cron`.
    Cron,
    /// `duration`.
    Duration,
    /// `timezone`.
    Timezone,
    /// `overrides`, or `from` or `until` of one of its entries.
    Overrides(Option<(usize, Edge)>),
}

/// Start or end of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// `from`.
    From,
    /// `until`.
    Until,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, name: &str, index: &Option<usize>| match index {
            Some(index) => write!(f, "{name}[{index}]"),
            None => f.write_str(name),
        };
        match self {
            Field::DaysOfWeek(index) => list(f, "daysOfWeek", index),
            Field::HoursOfDay(index) => list(f, "hoursOfDay", index),
            Field::Cron => f.write_str("cron"),
            Field::Duration => f.write_str("duration"),
            Field::Timezone => f.write_str("timezone"),
            Field::Overrides(None) => f.write_str("overrides"),
            Field::Overrides(Some((index, Edge::From))) => write!(f, "overrides[{index}].from"),
            Field::Overrides(Some((index, Edge::Until))) => write!(f, "overrides[{index}].until"),
        }
    }
}
