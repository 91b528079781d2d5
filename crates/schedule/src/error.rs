//! What is wrong with a schedule, where, and the way out.

use std::fmt;

use crate::duration::DurationError;
use crate::field::Field;

/// Everything that is wrong with a schedule; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleErrors(Vec<ScheduleError>);

impl ScheduleErrors {
    /// `value`, unless there is an error.
    pub(crate) fn check<T>(value: T, errors: Vec<ScheduleError>) -> Result<T, Self> {
        if errors.is_empty() { Ok(value) } else { Err(Self(errors)) }
    }

    pub(crate) fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        Self(parts.into_iter().flat_map(|part| part.0).collect())
    }

    /// The errors, in the order of the fields.
    pub fn iter(&self) -> std::slice::Iter<'_, ScheduleError> {
        self.0.iter()
    }
}

impl From<ScheduleError> for ScheduleErrors {
    fn from(error: ScheduleError) -> Self {
        Self(vec![error])
    }
}

impl<'a> IntoIterator for &'a ScheduleErrors {
    type Item = &'a ScheduleError;
    type IntoIter = std::slice::Iter<'a, ScheduleError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ScheduleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScheduleErrors {}

/// One thing that is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// The field's path below `spec.schedule`: `cron`, `daysOfWeek[1]`, `overrides[3].from`.
    pub field: Field,
    /// The field's text, as written.
    pub text: String,
    /// Where in `text` the fault is: a count of characters from 0, at most the text's length.
    ///
    /// Messages count from 1, as people and editors do.
    pub position: usize,
    /// What is wrong there.
    pub reason: Reason,
}

/// How much of an over-long text a message quotes; the fields of valid schedules are far shorter.
const QUOTED: usize = 64;

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, text, position, reason } = self;
        write!(f, "{field}: ")?;
        if !text.is_empty() {
            write!(f, "{:?}: ", shorten(text))?;
            if !reason.is_about_the_whole() {
                write!(f, "at character {}: ", position + 1)?;
            }
        }
        reason.fmt(f)
    }
}

impl std::error::Error for ScheduleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Why a text is refused, with the way out in the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Something else should stand here.
    #[error("expected {expected}, found {}", found_text(*.found))]
    Expected {
        /// What should stand here.
        expected: &'static str,
        /// What does; `None` at the end of the text.
        found: Option<char>,
    },
    /// A word that names no day.
    #[error("{word:?} is not a day: use mon, tue, wed, thu, fri, sat or sun, in lower case")]
    UnknownDay {
        /// The word.
        word: String,
    },
    /// A word that means nothing in this field of a cron expression.
    #[error("{word:?} is not {usable}")]
    UnknownName {
        /// The word.
        word: String,
        /// What may be written.
        usable: &'static str,
    },
    /// A number that the field does not have.
    #[error("{noun} {number} is not between {min} and {max}")]
    OutOfRange {
        /// What the field counts.
        noun: &'static str,
        /// The number as written.
        number: String,
        /// The smallest number possible.
        min: u32,
        /// The largest number possible.
        max: u32,
    },
    /// A number with more digits than any value needs.
    #[error("{noun} {number} has more than two digits")]
    TooManyDigits {
        /// What the field counts.
        noun: &'static str,
        /// The number as written.
        number: String,
    },
    /// A cron range that runs backwards.
    #[error("the range {range} runs backwards: {way_out}")]
    BackwardRange {
        /// The range as written.
        range: String,
        /// What to write.
        way_out: String,
    },
    /// A step after a single value, which cron dialects read in different ways.
    #[error("a step needs a range: write {start}-{max}/{step} or */{step}")]
    StepWithoutRange {
        /// The single value.
        start: u32,
        /// The field's largest number.
        max: u32,
        /// The step.
        step: u32,
    },
    /// `@daily` and its like.
    #[error("shorthands such as @daily are not supported: write the five fields, for example \"0 0 * * *\"")]
    CronShorthand,
    /// `TZ=…` before the fields.
    #[error("a cron expression has no zone of its own: set the field timezone")]
    ZoneInCron,
    /// Fewer or more than five fields.
    #[error(
        "a cron expression has five fields (minute, hour, day of month, month, day of week), here are {found}{}",
        if *.found == 6 { ": leave out the seconds" } else { "" }
    )]
    FieldCount {
        /// How many fields there are.
        found: usize,
    },
    /// `cron` beside days or hours.
    #[error("cron is mutually exclusive with daysOfWeek and hoursOfDay: set one or the other, not both")]
    CronAndDaysOrHours,
    /// Neither days nor hours nor cron.
    #[error("nothing says when to open: set daysOfWeek and hoursOfDay, or cron")]
    NothingSet,
    /// `duration` without `cron`.
    #[error("duration is the length of a cron window: set cron too, or leave duration out")]
    DurationWithoutCron,
    /// A list that is too long.
    #[error("has {count} entries, at most {limit} are possible")]
    TooManyEntries {
        /// How many entries there are.
        count: usize,
        /// How many are possible.
        limit: usize,
    },
    /// A duration that does not parse.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// No time zone is named.
    #[error("a time zone is required: use an IANA name such as Europe/Paris, or UTC")]
    NoZone,
    /// A name that the zone database does not have.
    #[error("no such time zone: use an IANA name such as Europe/Paris, or UTC")]
    UnknownZone,
    /// A date that the calendar does not have.
    #[error("there is no such date")]
    NoSuchDate,
    /// An override that ends before it starts.
    #[error("until must be later than from")]
    EndsBeforeItStarts,
}

impl Reason {
    /// Whether pointing at a character would mislead, because no single one is at fault.
    fn is_about_the_whole(&self) -> bool {
        matches!(
            self,
            Self::CronAndDaysOrHours
                | Self::DurationWithoutCron
                | Self::UnknownZone
                | Self::EndsBeforeItStarts
                | Self::FieldCount { .. }
        )
    }
}

/// A reason and its place, as a parser of one text knows them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) position: usize,
    pub(crate) reason: Reason,
}

impl Fault {
    pub(crate) fn new(position: usize, reason: impl Into<Reason>) -> Self {
        Self { position, reason: reason.into() }
    }

    pub(crate) fn in_field(self, field: Field, text: &str) -> ScheduleError {
        ScheduleError { field, text: text.to_owned(), position: self.position, reason: self.reason }
    }
}

/// The text, or its beginning where it is too long to quote.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn found_text(found: Option<char>) -> String {
    found.map_or_else(|| "the end".to_owned(), |found| format!("{found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_field_text_place_reason() {
        let reason = Reason::OutOfRange { noun: "hour", number: "25".into(), min: 0, max: 23 };
        let error = Fault::new(2, reason).in_field(Field::HoursOfDay(Some(0)), "9-25");
        assert_eq!(error.to_string(), r#"hoursOfDay[0]: "9-25": at character 3: hour 25 is not between 0 and 23"#);
    }

    #[test]
    fn errors_are_joined_in_order() {
        let no_zone = Fault::new(0, Reason::NoZone).in_field(Field::Timezone, "");
        let whole = Fault::new(0, Reason::DurationWithoutCron).in_field(Field::Duration, "9h");
        let errors = ScheduleErrors::join([whole.into(), no_zone.into()]);
        assert_eq!(
            errors.to_string(),
            "duration: \"9h\": duration is the length of a cron window: set cron too, or leave duration out; \
             timezone: a time zone is required: use an IANA name such as Europe/Paris, or UTC"
        );
    }

    #[test]
    fn a_message_quotes_only_the_beginning_of_a_very_long_text() {
        let error = Fault::new(0, Reason::UnknownZone).in_field(Field::Timezone, &"é".repeat(5000));
        assert!(error.to_string().len() < 300);
    }
}
