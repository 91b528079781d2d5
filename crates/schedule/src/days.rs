//! Parses `daysOfWeek`.

use crate::error::{Fault, Reason, shorten};
use crate::scan::{Scanner, wrapping_list};

/// In the order of the weekday bits of [`crate::calendar`]: Sunday is bit 0.
const NAMES: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The weekdays of one entry, Sunday in bit 0.
pub(crate) fn parse(text: &str) -> Result<u32, Fault> {
    wrapping_list(text, 7, "a comma, or a dash and a day (mon-fri)", day)
}

fn day(scanner: &mut Scanner<'_>) -> Result<u32, Fault> {
    let start = scanner.position();
    let word = scanner.take_while(u8::is_ascii_alphabetic);
    if word.is_empty() {
        return Err(scanner.expected("a day (mon, tue, wed, thu, fri, sat or sun)"));
    }
    (0..)
        .zip(NAMES)
        .find_map(|(number, name)| (name == word).then_some(number))
        .ok_or_else(|| Fault::new(start, Reason::UnknownDay { word: shorten(word) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(text: &str) -> Vec<&'static str> {
        let set = parse(text).unwrap();
        (0..7).filter(|day| set & 1 << day != 0).map(|day| NAMES[day]).collect()
    }

    #[test]
    fn days_ranges_and_lists() {
        assert_eq!(days("wed"), ["wed"]);
        assert_eq!(days("mon-fri"), ["mon", "tue", "wed", "thu", "fri"]);
        assert_eq!(days("mon-wed,fri"), ["mon", "tue", "wed", "fri"]);
        assert_eq!(days("tue-tue"), ["tue"]);
    }

    #[test]
    fn ranges_wrap_around_the_week() {
        assert_eq!(days("fri-mon"), ["sun", "mon", "fri", "sat"]);
        assert_eq!(days("sat-sun"), ["sun", "sat"]);
        assert_eq!(days("tue-mon").len(), 7);
    }

    #[test]
    fn invalid_days_are_rejected_with_position() {
        for (text, position) in [
            ("", 0),
            ("Mon", 0),
            ("mon-", 4),
            ("mon-fry", 4),
            ("mon fri", 3),
            (" mon", 0),
            ("mon,", 4),
            ("mon,,tue", 4),
            ("mon-wed-fri", 7),
            ("monday", 0),
            ("1", 0),
            ("mon\u{e9}", 3),
        ] {
            assert_eq!(parse(text).unwrap_err().position, position, "{text:?}");
        }
    }
}
