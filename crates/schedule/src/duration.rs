//! Durations as the API writes them.

use jiff::SignedDuration;

const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It does not begin with a digit.
    #[error("must be a duration string such as '5m', '30s', or '1h'")]
    NoNumber,
    /// Its number is zero, or begins with one.
    #[error("a duration begins with a digit from 1 to 9, as in '5m', '30s', or '1h'")]
    LeadingZero,
    /// What follows the number is not exactly one of the three units.
    #[error("a duration ends in its unit, s, m or h, as in '5m', '30s', or '1h'")]
    NoUnit {
        /// Where the unit should be, counted in characters from 0.
        position: usize,
    },
    /// It is longer than a day.
    #[error("a duration is at most 24h")]
    TooLong,
}

impl DurationError {
    /// Where in the text the fault is, counted in characters from 0.
    pub fn position(self) -> usize {
        match self {
            Self::NoNumber | Self::LeadingZero | Self::TooLong => 0,
            Self::NoUnit { position } => position,
        }
    }
}

/// Parses `<positive integer><s|m|h>`, at most 24h, without leading zeros: `30s`, `90m`, `9h`.
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
        .filter(|duration| *duration <= LONGEST)
        .ok_or(DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_minutes_and_hours_are_read() {
        assert_eq!(parse_duration("30s"), Ok(SignedDuration::from_secs(30)));
        assert_eq!(parse_duration("90m"), Ok(SignedDuration::from_secs(5400)));
        assert_eq!(parse_duration("9h"), Ok(SignedDuration::from_hours(9)));
    }

    #[test]
    fn a_day_is_the_longest_duration() {
        for text in ["24h", "1440m", "86400s"] {
            assert_eq!(parse_duration(text), Ok(LONGEST));
        }
        for text in ["25h", "1441m", "86401s", "99999999999999999999h", "9223372036854775807h"] {
            assert_eq!(parse_duration(text), Err(DurationError::TooLong));
        }
    }

    #[test]
    fn anything_else_is_refused_where_it_stands() {
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
