//! Parses the start or end of an override: an RFC 3339 timestamp or a local date.

use jiff::Timestamp;
use jiff::civil::Date;

use crate::calendar::{Day, HOUR, MINUTE, Wall};
use crate::error::{Fault, Reason};
use crate::scan::Scanner;
use crate::zone::Zone;

/// An instant, or a date that becomes an instant in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstantOrDate {
    Instant(Timestamp),
    LocalDate(Date),
}

const DATE: &str = "a date (2026-12-24) or an RFC 3339 timestamp (2026-12-24T18:00:00Z)";
const TIME: &str = "a time of day to the second (T18:00:00)";
const OFFSET: &str = "Z or an offset from UTC (+01:00)";

impl InstantOrDate {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let mut scanner = Scanner::new(text);
        let date = date(&mut scanner)?;
        if scanner.at_end() {
            return Ok(Self::LocalDate(date));
        }
        let (second, nanosecond) = time_of_day(&mut scanner)?;
        let offset = offset(&mut scanner)?;
        if !scanner.at_end() {
            return Err(scanner.expected("the end of the text"));
        }
        Ok(Self::Instant(nearest(Wall::on(Day::of(date), second).0 - offset, nanosecond)))
    }

    /// The instant in `zone`. A date is the first instant at which the wall clock has reached its 00:00.
    pub(crate) fn resolve(self, zone: &Zone) -> Timestamp {
        match self {
            Self::Instant(instant) => instant,
            Self::LocalDate(date) => nearest(zone.first_reaching(Wall::on(Day::of(date), 0)), 0),
        }
    }
}

fn date(scanner: &mut Scanner<'_>) -> Result<Date, Fault> {
    let start = scanner.position();
    let year = scanner.digits(4, DATE)?;
    punctuation(scanner, '-', DATE)?;
    let month = scanner.digits(2, DATE)?;
    punctuation(scanner, '-', DATE)?;
    let day = scanner.digits(2, DATE)?;
    let small = |number: u32| i8::try_from(number).ok();
    i16::try_from(year)
        .ok()
        .zip(small(month).zip(small(day)))
        .and_then(|(year, (month, day))| Date::new(year, month, day).ok())
        .ok_or_else(|| Fault::new(start, Reason::NoSuchDate))
}

/// Seconds since midnight, and nanoseconds.
fn time_of_day(scanner: &mut Scanner<'_>) -> Result<(i64, i32), Fault> {
    punctuation(scanner, 'T', TIME)?;
    let hour = two_digits(scanner, "hour", 23)?;
    punctuation(scanner, ':', TIME)?;
    let minute = two_digits(scanner, "minute", 59)?;
    punctuation(scanner, ':', TIME)?;
    let second = two_digits(scanner, "second", 59)?;
    let nanosecond = if scanner.eat('.') { fraction(scanner)? } else { 0 };
    Ok((hour * HOUR + minute * MINUTE + second, nanosecond))
}

/// The digits after the decimal point, as nanoseconds. Digits beyond the ninth are dropped.
fn fraction(scanner: &mut Scanner<'_>) -> Result<i32, Fault> {
    let digits = scanner.take_while(u8::is_ascii_digit);
    if digits.is_empty() {
        return Err(scanner.expected("fractional digits of a second"));
    }
    let nine = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    Ok(nine.fold(0, |nanoseconds, digit| nanoseconds * 10 + i32::from(digit - b'0')))
}

fn offset(scanner: &mut Scanner<'_>) -> Result<i64, Fault> {
    if scanner.eat('Z') {
        return Ok(0);
    }
    let sign = if scanner.eat('+') {
        1
    } else if scanner.eat('-') {
        -1
    } else {
        return Err(scanner.expected(OFFSET));
    };
    let hour = two_digits(scanner, "offset hour", 23)?;
    punctuation(scanner, ':', OFFSET)?;
    let minute = two_digits(scanner, "offset minute", 59)?;
    Ok(sign * (hour * HOUR + minute * MINUTE))
}

fn punctuation(scanner: &mut Scanner<'_>, wanted: char, expected: &'static str) -> Result<(), Fault> {
    if scanner.eat(wanted) { Ok(()) } else { Err(scanner.expected(expected)) }
}

fn two_digits(scanner: &mut Scanner<'_>, noun: &'static str, max: u32) -> Result<i64, Fault> {
    let start = scanner.position();
    let number = scanner.digits(2, "two digits")?;
    if number <= max {
        return Ok(number.into());
    }
    Err(Fault::new(start, Reason::OutOfRange { noun, number: format!("{number:02}"), min: 0, max }))
}

/// The instant, or the nearest one that can be represented: users write `9999-12-31` for "forever".
fn nearest(second: i64, nanosecond: i32) -> Timestamp {
    Timestamp::new(second, nanosecond).unwrap_or(if second < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_agree_with_rfc_3339_parser() {
        for text in [
            "2026-12-24T18:00:00Z",
            "2026-12-24T18:00:00.5Z",
            "2026-12-24T18:00:00.000000001+01:00",
            "1969-12-31T23:59:59.25-11:30",
            "2024-02-29T00:00:00-00:00",
        ] {
            assert_eq!(InstantOrDate::parse(text), Ok(InstantOrDate::Instant(text.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn date_is_resolved_in_its_zone() {
        let parsed = InstantOrDate::parse("2026-12-24").unwrap();
        assert_eq!(parsed, InstantOrDate::LocalDate(Date::constant(2026, 12, 24)));
        let tokyo = Zone::named("Asia/Tokyo").unwrap();
        assert_eq!(parsed.resolve(&tokyo), "2026-12-23T15:00:00Z".parse().unwrap());
    }

    #[test]
    fn unrepresentable_instants_are_clamped() {
        assert_eq!(InstantOrDate::parse("9999-12-31T23:59:59Z"), Ok(InstantOrDate::Instant(Timestamp::MAX)));
        let utc = Zone::named("UTC").unwrap();
        assert_eq!(InstantOrDate::parse("9999-12-31").unwrap().resolve(&utc), Timestamp::MAX);
    }

    #[test]
    fn invalid_instants_are_rejected_with_position() {
        for (text, position) in [
            ("", 0),
            ("today", 0),
            ("2026-1-01", 6),
            ("2026-02-30", 0),
            ("2025-02-29T00:00:00Z", 0),
            ("20260101", 4),
            ("2026-01-01 00:00:00Z", 10),
            ("2026-01-01t00:00:00Z", 10),
            ("2026-01-01T", 11),
            ("2026-01-01T24:00:00Z", 11),
            ("2026-01-01T00:60:00Z", 14),
            ("2026-01-01T00:00:60Z", 17),
            ("2026-01-01T00:00Z", 16),
            ("2026-01-01T00:00:00", 19),
            ("2026-01-01T00:00:00.Z", 20),
            ("2026-01-01T00:00:00z", 19),
            ("2026-01-01T00:00:00+0100", 22),
            ("2026-01-01T00:00:00+24:00", 20),
            ("2026-01-01T00:00:00Z ", 20),
            ("2026-01-01T00:00:00+01:00[Europe/Paris]", 25),
            ("\u{0662}026-01-01", 0),
        ] {
            assert_eq!(InstantOrDate::parse(text).unwrap_err().position, position, "{text:?}");
        }
    }
}
