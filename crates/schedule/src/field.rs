//! The fields of a schedule, by the names that users know them by.

use std::fmt;

/// A field below `spec.schedule`, or an instant that somebody asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// All of `daysOfWeek`, or one entry.
    DaysOfWeek(Option<usize>),
    /// All of `hoursOfDay`, or one entry.
    HoursOfDay(Option<usize>),
    /// `cron`.
    Cron,
    /// `duration`.
    Duration,
    /// `timezone`.
    Timezone,
    /// All of `overrides`, or one edge of an entry.
    Overrides(Option<(usize, Edge)>),
    /// No field of a schedule: an instant, called as its asker calls it.
    Asked(String),
}

/// One end of an override.
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
            Field::Asked(name) => f.write_str(name),
        }
    }
}
