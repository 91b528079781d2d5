//! Parses cron expressions into sets.

use crate::calendar::{DayRule, DaySet};
use crate::error::{Fault, Reason, shorten};
use crate::hours::Hours;
use crate::scan::Scanner;

/// A cron expression. It fires at each of `minutes` of each of `hours` on each of `days`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    /// Minute 0 in bit 0; never empty.
    pub(crate) minutes: u64,
    pub(crate) hours: Hours,
    pub(crate) days: DaySet,
}

/// One of the five fields.
struct Field {
    noun: &'static str,
    expected: &'static str,
    min: u32,
    max: u32,
    /// Names of the numbers, starting at `min`.
    names: &'static [&'static str],
}

const MINUTE: Field = Field { noun: "minute", expected: "a minute (0 to 59) or *", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { noun: "hour", expected: "an hour (0 to 23) or *", min: 0, max: 23, names: &[] };
const MONTH_DAY: Field =
    Field { noun: "day of month", expected: "a day of month (1 to 31) or *", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    noun: "month",
    expected: "a month (1 to 12, jan to dec) or *",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: Field = Field {
    noun: "day of week",
    expected: "a day of week (0 to 7, sun to sat) or *",
    min: 0,
    max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

impl Cron {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let words = words(text);
        if let Some(&(position, first)) = words.first() {
            if first.starts_with('@') {
                return Err(Fault::new(position, Reason::CronShorthand));
            }
            if first.starts_with("TZ=") || first.starts_with("CRON_TZ=") {
                return Err(Fault::new(position, Reason::ZoneInCron));
            }
        }
        let &[minute, hour, month_day, month, weekday] = words.as_slice() else {
            let position = words.get(5).map_or(text.chars().count(), |&(position, _)| position);
            return Err(Fault::new(position, Reason::FieldCount { found: words.len() }));
        };
        let starred = [month_day, weekday].iter().any(|(_, word)| word.starts_with('*'));
        let minutes = MINUTE.parse(minute)?;
        let hours = Hours::from_bits(low_bits(HOUR.parse(hour)?));
        let days = DaySet {
            month_days: low_bits(MONTH_DAY.parse(month_day)?),
            months: low_bits(MONTH.parse(month)?),
            weekdays: sunday_once(low_bits(WEEKDAY.parse(weekday)?)),
            rule: if starred { DayRule::Both } else { DayRule::Either },
        };
        Ok(Self { minutes, hours, days })
    }
}

impl Field {
    /// Parses a comma-separated list of `*`, `a`, `a-b`, `*/n` and `a-b/n` into a set of numbers.
    fn parse(&self, (position, word): (usize, &str)) -> Result<u64, Fault> {
        let mut scanner = Scanner::starting_at(word, position);
        let mut set = 0;
        loop {
            set |= self.parse_entry(&mut scanner)?;
            if scanner.at_end() {
                return Ok(set);
            }
            if !scanner.eat(',') {
                return Err(scanner.expected("a comma, a dash or a slash between values, or a space between fields"));
            }
        }
    }

    fn parse_entry(&self, scanner: &mut Scanner<'_>) -> Result<u64, Fault> {
        let start = scanner.position();
        if scanner.eat('*') {
            let step = step(scanner)?.unwrap_or(1);
            return Ok(every(step, self.min, self.max));
        }
        let first = self.parse_value(scanner)?;
        if !scanner.eat('-') {
            return match step(scanner)? {
                None => Ok(every(1, first, first)),
                Some(step) => {
                    let reason = Reason::StepWithoutRange { start: first, max: self.last(), step };
                    Err(Fault::new(start, reason))
                }
            };
        }
        let last = self.parse_value(scanner)?;
        if last < first {
            return Err(Fault::new(start, self.backward(first, last)));
        }
        let step = step(scanner)?.unwrap_or(1);
        Ok(every(step, first, last))
    }

    fn parse_value(&self, scanner: &mut Scanner<'_>) -> Result<u32, Fault> {
        if let Some(number) = scanner.small_number(self.noun, self.min, self.max)? {
            return Ok(number);
        }
        let start = scanner.position();
        let word = scanner.take_while(u8::is_ascii_alphabetic);
        if word.is_empty() {
            return Err(scanner.expected(self.expected));
        }
        (self.min..)
            .zip(self.names)
            .find_map(|(number, name)| name.eq_ignore_ascii_case(word).then_some(number))
            .ok_or_else(|| Fault::new(start, Reason::UnknownName { word: shorten(word), expected: self.expected }))
    }

    fn backward(&self, first: u32, last: u32) -> Reason {
        let suggestion = if self.max == WEEKDAY.max && last == 0 {
            format!("at the end of a range Sunday is 7, as in {first}-7")
        } else if first == self.last() {
            format!("write {first},{}-{last}", self.min)
        } else {
            format!("write {first}-{},{}-{last}", self.last(), self.min)
        };
        Reason::BackwardRange { range: format!("{first}-{last}"), suggestion }
    }

    /// The largest number that is not a synonym of another: Sunday is both 0 and 7.
    fn last(&self) -> u32 {
        if self.max == WEEKDAY.max { 6 } else { self.max }
    }
}

/// Splits at white space, and returns each word with its position in characters.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    let ends = text.char_indices().map(|(byte, character)| (byte, character.is_ascii_whitespace()));
    for (position, (byte, blank)) in ends.chain([(text.len(), true)]).enumerate() {
        match (start, blank) {
            (None, false) => start = Some((position, byte)),
            (Some((first_position, first_byte)), true) => {
                words.push((first_position, &text[first_byte..byte]));
                start = None;
            }
            (None, true) | (Some(_), false) => {}
        }
    }
    words
}

/// Consumes `/n` if it follows.
fn step(scanner: &mut Scanner<'_>) -> Result<Option<u32>, Fault> {
    if !scanner.eat('/') {
        return Ok(None);
    }
    let step = scanner.small_number("step", 1, 99)?;
    step.map(Some).ok_or_else(|| scanner.expected("a step (a number of at least 1)"))
}

/// Every `step`-th number from `first` to `last`, as bits.
fn every(step: u32, first: u32, last: u32) -> u64 {
    (first..=last).filter(|number| (number - first).is_multiple_of(step)).fold(0, |bits, number| bits | 1 << number)
}

/// Moves day 7 to day 0: both are Sunday.
fn sunday_once(weekdays: u32) -> u32 {
    (weekdays | weekdays >> 7) & 0b111_1111
}

fn low_bits(set: u64) -> u32 {
    u32::try_from(set).expect("only the minute field has numbers above 31")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Cron {
        Cron::parse(text).unwrap()
    }

    fn fault(text: &str) -> (usize, String) {
        let fault = Cron::parse(text).unwrap_err();
        (fault.position, fault.reason.to_string())
    }

    #[test]
    fn lists_ranges_and_steps() {
        assert_eq!(parse("*/15 * * * *").minutes, 1 | 1 << 15 | 1 << 30 | 1 << 45);
        assert_eq!(parse("5-20/5,59 * * * *").minutes, 1 << 5 | 1 << 10 | 1 << 15 | 1 << 20 | 1 << 59);
        assert_eq!(parse("0 9-17/2 * * *").hours, Hours::parse("9,11,13,15,17").unwrap());
        assert_eq!(parse("\t00  09 * * *\n"), parse("0 9 * * *"));
        assert_eq!(parse("*/60 * * * *").minutes, 1);
    }

    #[test]
    fn names_are_case_insensitive() {
        assert_eq!(parse("0 0 * jan-MAR,Dec mon-Fri"), parse("0 0 * 1-3,12 1-5"));
    }

    #[test]
    fn sunday_is_0_and_7() {
        assert_eq!(parse("0 0 * * 7"), parse("0 0 * * sun"));
        assert_eq!(parse("0 0 * * 5-7"), parse("0 0 * * 0,5,6"));
        assert_eq!(parse("0 0 * * 0-7"), parse("0 0 * * *"));
    }

    #[test]
    fn day_fields_combine_like_cron() {
        assert_eq!(parse("0 0 13 * 5").days.rule, DayRule::Either);
        for both in ["0 0 * * 5", "0 0 13 * *", "0 0 */2 * 1-5", "0 0 13 * */2", "0 0 *,13 * 5"] {
            assert_eq!(parse(both).days.rule, DayRule::Both, "{both}");
        }
    }

    #[test]
    fn equals_days_and_hours() {
        let cron = parse("0 9-17 * * 1-5");
        assert_eq!(cron.hours, Hours::parse("9-17").unwrap());
        assert_eq!(cron.days, DaySet::on_weekdays(crate::days::parse("mon-fri").unwrap()));
    }

    #[test]
    fn ambiguous_syntax_is_rejected_with_suggestion() {
        assert_eq!(fault("5/15 * * * *"), (0, "a step needs a range: write 5-59/15 or */15".into()));
        assert_eq!(fault("0 22-6 * * *"), (2, "the range 22-6 runs backwards: write 22-23,0-6".into()));
        assert_eq!(fault("0 23-6 * * *").1, "the range 23-6 runs backwards: write 23,0-6");
        assert_eq!(
            fault("0 0 * * fri-sun").1,
            "the range 5-0 runs backwards: at the end of a range Sunday is 7, as in 5-7"
        );
        assert_eq!(fault("0 0 * * fri-mon").1, "the range 5-1 runs backwards: write 5-6,0-1");
        assert!(fault("@daily").1.contains("write the five fields"));
        assert!(fault("TZ=UTC 0 9 * * *").1.contains("set timezone instead"));
        assert!(fault("0 0 9 * * *").1.ends_with("found 6: leave out the seconds"));
    }

    #[test]
    fn invalid_expressions_are_rejected_with_position() {
        for (text, position) in [
            ("", 0),
            ("0 9 * *", 7),
            ("0 0 9 * * *", 10),
            ("60 * * * *", 0),
            ("* 24 * * *", 2),
            ("* * 0 * *", 4),
            ("* * 32 * *", 4),
            ("* * * 13 *", 6),
            ("* * * * 8", 8),
            ("* * * * mon-fry", 12),
            ("mon * * * *", 0),
            ("*/0 * * * *", 2),
            ("*/ * * * *", 2),
            ("*/100 * * * *", 2),
            ("1- * * * *", 2),
            ("1,,2 * * * *", 2),
            ("1, * * * *", 2),
            ("** * * * *", 1),
            ("*-5 * * * *", 1),
            ("1-2-3 * * * *", 3),
            ("? * * * *", 0),
            ("0 0 L * *", 4),
            ("0 0 15W * *", 6),
            ("0 0 * * 5#3", 9),
            ("é * * * 99", 0),
            ("* é * * *", 2),
        ] {
            assert_eq!(fault(text).0, position, "{text:?}");
        }
    }
}
