//! Errors of the parser.

use std::fmt;

use crate::duration::DurationError;
use crate::field::Field;

/// All errors of a schedule; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleErrors(Vec<ScheduleError>);

impl ScheduleErrors {
    /// Returns `value` if there are no errors.
    pub(crate) fn check<T>(value: T, errors: Vec<ScheduleError>) -> Result<T, Self> {
        if errors.is_empty() { Ok(value) } else { Err(Self(errors)) }
    }

    pub(crate) fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        Self(parts.into_iter().flat_map(|part| part.0).collect())
    }

    /// Returns the errors, in the order of the fields.
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

/// An error in one field of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// The field, below `spec.schedule`.
    pub field: Field,
    /// The text of the field.
    pub text: String,
    /// Position of the error in `text`, in characters from 0, at most the length of the text. Messages count from 1.
    pub position: usize,
    /// What is wrong at that position.
    pub reason: Reason,
}

/// An error in a text that is neither an RFC 3339 timestamp nor a local date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstantError {
    /// The text.
    pub text: String,
    /// Position of the error in `text`, in characters from 0, at most the length of the text. Messages count from 1.
    pub position: usize,
    /// What is wrong at that position.
    pub reason: Reason,
}

/// Messages quote at most this many characters of a text; the fields of valid schedules are far shorter.
const MAX_QUOTED: usize = 64;

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, text, position, reason } = self;
        write!(f, "{field}: ")?;
        write_located(f, text, *position, reason)
    }
}

impl std::error::Error for ScheduleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

impl fmt::Display for InstantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_located(f, &self.text, self.position, &self.reason)
    }
}

impl std::error::Error for InstantError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

fn write_located(f: &mut fmt::Formatter<'_>, text: &str, position: usize, reason: &Reason) -> fmt::Result {
    if !text.is_empty() {
        write!(f, "{:?}: ", shorten(text))?;
        if !reason.concerns_whole_text() {
            write!(f, "at character {}: ", position + 1)?;
        }
    }
    write!(f, "{reason}")
}

/// Why a text is invalid. The message says how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An unexpected character, or an unexpected end of the text.
    #[error("expected {expected}, found {}", found_text(*.found))]
    Expected {
        /// What was expected.
        expected: &'static str,
        /// What was found; `None` at the end of the text.
        found: Option<char>,
    },
    /// A word that is not the name of a day.
    #[error("{word:?} is not a day: use mon, tue, wed, thu, fri, sat or sun, in lower case")]
    UnknownDay {
        /// The word.
        word: String,
    },
    /// A word that is not valid in this field of a cron expression.
    #[error("{word:?} is not {expected}")]
    UnknownName {
        /// The word.
        word: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A number outside the range of the field.
    #[error("{noun} {number} is not between {min} and {max}")]
    OutOfRange {
        /// What the field counts.
        noun: &'static str,
        /// The number as written.
        number: String,
        /// The smallest valid number.
        min: u32,
        /// The largest valid number.
        max: u32,
    },
    /// A number with more than two digits, such as `009`.
    #[error("{noun} {number} has more than two digits")]
    TooManyDigits {
        /// What the field counts.
        noun: &'static str,
        /// The number as written.
        number: String,
    },
    /// A cron range that runs backwards.
    #[error("the range {range} runs backwards: {suggestion}")]
    BackwardRange {
        /// The range as written.
        range: String,
        /// What to write instead.
        suggestion: String,
    },
    /// A step after a single value, which cron dialects interpret differently.
    #[error("a step needs a range: write {start}-{max}/{step} or */{step}")]
    StepWithoutRange {
        /// The single value.
        start: u32,
        /// The largest number of the field.
        max: u32,
        /// The step.
        step: u32,
    },
    /// A shorthand such as `@daily`.
    #[error("shorthands such as @daily are not supported: write the five fields, for example \"0 0 * * *\"")]
    CronShorthand,
    /// `TZ=…` in a cron expression.
    #[error("a cron expression cannot set the time zone: set timezone instead")]
    ZoneInCron,
    /// Fewer or more than five fields.
    #[error(
        "a cron expression has five fields (minute, hour, day of month, month, day of week), found {found}{}",
        if *.found == 6 { ": leave out the seconds" } else { "" }
    )]
    FieldCount {
        /// The number of fields.
        found: usize,
    },
    /// `cron` together with days or hours.
    #[error("cron is mutually exclusive with daysOfWeek and hoursOfDay: set one or the other, not both")]
    CronAndDaysOrHours,
    /// No days, no hours and no cron expression.
    #[error("the schedule is empty: set daysOfWeek and hoursOfDay, or cron")]
    NothingSet,
    /// `duration` without `cron`.
    #[error("duration requires cron: set cron, or remove duration")]
    DurationWithoutCron,
    /// A list with too many entries.
    #[error("has {count} entries, at most {limit} are allowed")]
    TooManyEntries {
        /// The number of entries.
        count: usize,
        /// The maximum.
        limit: usize,
    },
    /// An invalid duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// An empty time zone.
    #[error("a time zone is required: use an IANA name such as Europe/Paris, or UTC")]
    NoZone,
    /// A name that is not in the time zone database.
    #[error("unknown time zone: use an IANA name such as Europe/Paris, or UTC")]
    UnknownZone,
    /// A date that does not exist.
    #[error("this date does not exist")]
    NoSuchDate,
    /// An override that ends before it starts.
    #[error("until must be later than from")]
    EndsBeforeItStarts,
}

impl Reason {
    /// Whether the message should not name a position, because the text as a whole is wrong.
    fn concerns_whole_text(&self) -> bool {
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

/// A reason and its position, before the field is known.
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

    pub(crate) fn in_text(self, text: &str) -> InstantError {
        InstantError { text: text.to_owned(), position: self.position, reason: self.reason }
    }
}

/// Truncates a text that is too long to quote.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn found_text(found: Option<char>) -> String {
    found.map_or_else(|| "the end of the text".to_owned(), |found| format!("{found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_message_has_field_text_position_and_reason() {
        let reason = Reason::OutOfRange { noun: "hour", number: "25".into(), min: 0, max: 23 };
        let error = Fault::new(2, reason).in_field(Field::HoursOfDay(Some(0)), "9-25");
        assert_eq!(error.to_string(), r#"hoursOfDay[0]: "9-25": at character 3: hour 25 is not between 0 and 23"#);
    }

    #[test]
    fn errors_keep_their_order() {
        let no_zone = Fault::new(0, Reason::NoZone).in_field(Field::Timezone, "");
        let whole = Fault::new(0, Reason::DurationWithoutCron).in_field(Field::Duration, "9h");
        let errors = ScheduleErrors::join([whole.into(), no_zone.into()]);
        assert_eq!(
            errors.to_string(),
            "duration: \"9h\": duration requires cron: set cron, or remove duration; \
             timezone: a time zone is required: use an IANA name such as Europe/Paris, or UTC"
        );
    }

    #[test]
    fn long_text_is_truncated_in_message() {
        let error = Fault::new(0, Reason::UnknownZone).in_field(Field::Timezone, &"é".repeat(5000));
        assert!(error.to_string().len() < 300);
    }
}
