//! Durations in the format of the API.

use jiff::SignedDuration;

const MAX: SignedDuration = SignedDuration::from_hours(24);

/// Why a text is not a valid duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not start with a digit.
    #[error("must be a duration string such as '5m', '30s', or '1h'")]
    NoNumber,
    /// The number is zero or has leading zeros.
    #[error("a duration must start with a digit from 1 to 9, as in '5m', '30s', or '1h'")]
    LeadingZero,
    /// The number is not followed by exactly one unit.
    #[error("a duration must be a number followed by a single unit (s, m or h), as in '5m', '30s', or '1h'")]
    NoUnit {
        /// Position at which the unit or the end was expected, in characters from 0.
        position: usize,
    },
    /// The duration is longer than 24 hours.
    #[error("a duration must be at most 24h")]
    TooLong,
}

impl DurationError {
    /// Position of the error in the text, in characters from 0.
    pub fn position(self) -> usize {
        match self {
            Self::NoNumber | Self::LeadingZero | Self::TooLong => 0,
            Self::NoUnit { position } => position,
        }
    }
}

/// Parses a duration such as `30s`, `90m` or `9h`: a positive integer without leading zeros and a unit, at most 24 hours.
///
/// ```
/// use fivespot_schedule::{DurationError, parse_duration};
///
/// assert_eq!(parse_duration("90m").map(|duration| duration.as_secs()), Ok(5400));
/// assert_eq!(parse_duration("25h"), Err(DurationError::TooLong));
/// ```
pub fn parse_duration(text: &str) -> Result<SignedDuration, DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(DurationError::NoNumber);
    }
    if number.starts_with('0') {
        return Err(DurationError::LeadingZero);
    }
    let seconds_per_unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => {
            let known = usize::from(unit.starts_with(['s', 'm', 'h']));
            return Err(DurationError::NoUnit { position: digits + known });
        }
    };
    number
        .parse::<i64>()
        .ok()
        .and_then(|number| number.checked_mul(seconds_per_unit))
        .map(SignedDuration::from_secs)
        .filter(|duration| *duration <= MAX)
        .ok_or(DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_minutes_and_hours() {
        assert_eq!(parse_duration("30s"), Ok(SignedDuration::from_secs(30)));
        assert_eq!(parse_duration("90m"), Ok(SignedDuration::from_secs(5400)));
        assert_eq!(parse_duration("9h"), Ok(SignedDuration::from_hours(9)));
    }

    #[test]
    fn at_most_24_hours() {
        for text in ["24h", "1440m", "86400s"] {
            assert_eq!(parse_duration(text), Ok(MAX));
        }
        for text in ["25h", "1441m", "86401s", "99999999999999999999h", "9223372036854775807h"] {
            assert_eq!(parse_duration(text), Err(DurationError::TooLong));
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_position() {
        for (text, error) in [
            ("", DurationError::NoNumber),
            ("five", DurationError::NoNumber),
            ("-5m", DurationError::NoNumber),
            (" 5m", DurationError::NoNumber),
            ("0m", DurationError::LeadingZero),
            ("05m", DurationError::LeadingZero),
            ("5", DurationError::NoUnit { position: 1 }),
            ("5 m", DurationError::NoUnit { position: 1 }),
            ("5d", DurationError::NoUnit { position: 1 }),
            ("5m ", DurationError::NoUnit { position: 2 }),
            ("1h30m", DurationError::NoUnit { position: 2 }),
            ("1.5h", DurationError::NoUnit { position: 1 }),
        ] {
            assert_eq!(parse_duration(text), Err(error), "{text:?}");
        }
    }
}
