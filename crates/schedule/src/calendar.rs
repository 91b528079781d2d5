//! Wall clock readings, and the set of days that a schedule lists.
//!
//! A [`Wall`] reading is independent of time zones: it is what a clock on the wall shows, in seconds as if every day had 24
//! hours. [`crate::zone`] maps readings to instants.

use jiff::civil::{Date, Weekday};

pub(crate) const MINUTE: i64 = 60;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// The Gregorian calendar repeats after 400 years, weekdays included.
pub(crate) const CYCLE: i64 = 146_097 * DAY;
const CYCLE_IN_MONTHS: usize = 400 * 12;

const EPOCH: Date = Date::constant(1970, 1, 1);

/// A wall clock reading, in seconds since the reading 1970-01-01T00:00:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wall(pub(crate) i64);

impl Wall {
    pub(crate) fn on(day: Day, second: i64) -> Self {
        Self(day.0 * DAY + second)
    }

    pub(crate) fn at_hour(day: Day, hour: u32) -> Self {
        Self::on(day, i64::from(hour) * HOUR)
    }

    pub(crate) fn day(self) -> Day {
        Day(self.0.div_euclid(DAY))
    }

    pub(crate) fn second_of_day(self) -> i64 {
        self.0.rem_euclid(DAY)
    }

    pub(crate) fn hour(self) -> u32 {
        u32::try_from(self.second_of_day() / HOUR).expect("a day has 24 hours")
    }
}

/// A calendar day, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day(pub(crate) i64);

impl Day {
    pub(crate) fn of(date: Date) -> Self {
        Self(date.duration_since(EPOCH).as_hours() / 24)
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(crate) fn previous(self) -> Self {
        Self(self.0 - 1)
    }

    /// The date, or `None` outside the years -9999 to 9999.
    fn date(self) -> Option<Date> {
        let days = i32::try_from(self.0).ok()?;
        EPOCH.checked_add(jiff::Span::new().try_days(days).ok()?).ok()
    }
}

/// How the two day fields of a cron expression combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DayRule {
    /// A day is listed if both its day of month and its weekday are.
    Both,
    /// A day is listed if its day of month or its weekday is.
    Either,
}

/// The days that a schedule lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DaySet {
    /// January is bit 1.
    pub(crate) months: u32,
    /// The first day of the month is bit 1.
    pub(crate) month_days: u32,
    /// Sunday is bit 0.
    pub(crate) weekdays: u32,
    pub(crate) rule: DayRule,
}

const ALL_MONTHS: u32 = 0b1_1111_1111_1110;
const ALL_MONTH_DAYS: u32 = !1;
const ALL_WEEKDAYS: u32 = 0b111_1111;

/// The maximum number of days of each month. January is at index 1.
const LONGEST_MONTHS: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl DaySet {
    /// All days with one of these weekdays. Sunday is bit 0.
    pub(crate) fn on_weekdays(weekdays: u32) -> Self {
        Self { months: ALL_MONTHS, month_days: ALL_MONTH_DAYS, weekdays, rule: DayRule::Both }
    }

    pub(crate) fn every() -> Self {
        Self::on_weekdays(ALL_WEEKDAYS)
    }

    /// Whether every day is listed.
    ///
    /// Within one cycle of the calendar, each date of the year falls on each weekday. With [`DayRule::Either`], one day
    /// missing in both fields is therefore enough for some day not to be listed.
    pub(crate) fn is_every(self) -> bool {
        let month_days = self.month_days == ALL_MONTH_DAYS;
        let weekdays = self.weekdays == ALL_WEEKDAYS;
        self.months == ALL_MONTHS
            && match self.rule {
                DayRule::Both => month_days && weekdays,
                DayRule::Either => month_days || weekdays,
            }
    }

    /// Whether no day is ever listed, as for the 30th of February.
    fn is_none(self) -> bool {
        let some_month_day = (1..=12)
            .filter(|month| self.months >> month & 1 == 1)
            .any(|month| self.month_days & days_up_to(LONGEST_MONTHS[month]) != 0);
        match self.rule {
            DayRule::Both => !some_month_day || self.weekdays == 0,
            DayRule::Either => !some_month_day && (self.weekdays == 0 || self.months == 0),
        }
    }

    pub(crate) fn lists(self, day: Day) -> bool {
        day.date().is_some_and(|date| self.listed_in_month_of(date) >> date.day() & 1 == 1)
    }

    /// The first listed day on or after `from`.
    pub(crate) fn first_listed(self, from: Day) -> Option<Day> {
        if self.is_none() {
            return None;
        }
        first_day(from, |month| self.listed_in_month_of(month))
    }

    /// The first day on or after `from` that is not listed.
    pub(crate) fn first_unlisted(self, from: Day) -> Option<Day> {
        if self.is_every() {
            return None;
        }
        first_day(from, |month| {
            !self.listed_in_month_of(month) & days_up_to(month.days_in_month().unsigned_abs().into())
        })
    }

    /// The listed days of the month of `date`. The first day is bit 1.
    fn listed_in_month_of(self, date: Date) -> u32 {
        if self.months >> date.month() & 1 == 0 {
            return 0;
        }
        let by_weekday = repeat_weekdays(self.weekdays, date.first_of_month().weekday());
        let listed = match self.rule {
            DayRule::Both => self.month_days & by_weekday,
            DayRule::Either => self.month_days | by_weekday,
        };
        listed & days_up_to(date.days_in_month().unsigned_abs().into())
    }
}

/// Bits 1 to `last`.
fn days_up_to(last: u32) -> u32 {
    ALL_MONTH_DAYS & (u32::MAX >> (31 - last))
}

/// The days of a month that fall on one of `weekdays`. The first day is bit 1.
fn repeat_weekdays(weekdays: u32, first_of_month: Weekday) -> u32 {
    // Six weeks cover any month, whichever weekday it starts on.
    let weeks = (0..6).fold(0_u64, |weeks, week| weeks | u64::from(weekdays) << (7 * week));
    let from_the_first = weeks >> first_of_month.to_sunday_zero_offset() << 1;
    u32::try_from(from_the_first & u64::from(ALL_MONTH_DAYS)).expect("masked to 32 bits")
}

/// The first day on or after `from` whose bit is set in `days_of` its month. Searches one cycle of the calendar.
fn first_day(from: Day, days_of: impl Fn(Date) -> u32) -> Option<Day> {
    let date = from.date()?;
    let mut days = days_of(date) & (u32::MAX << date.day());
    let mut month = date.first_of_month();
    for _ in 0..=CYCLE_IN_MONTHS {
        if days != 0 {
            return Some(Day(Day::of(month).0 - 1 + i64::from(days.trailing_zeros())));
        }
        month = month.last_of_month().tomorrow().ok()?;
        days = days_of(month);
    }
    None
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn days(months: u32, month_days: u32, weekdays: u32, rule: DayRule) -> DaySet {
        DaySet { months, month_days, weekdays, rule }
    }

    #[test]
    fn days_before_and_after_1970() {
        assert_eq!(Day::of(date(1970, 1, 1)), Day(0));
        assert_eq!(Day::of(date(1969, 12, 31)), Day(-1));
        assert_eq!(Day(20_000).date().map(Day::of), Some(Day(20_000)));
        assert_eq!(Day(-5_000_000).date(), None);
    }

    #[test]
    fn readings_before_1970() {
        let reading = Wall(-1);
        assert_eq!((reading.day(), reading.hour()), (Day(-1), 23));
    }

    #[test]
    fn february_29_exists_in_leap_years() {
        let leap_days = days(1 << 2, 1 << 29, ALL_WEEKDAYS, DayRule::Both);
        let next = |date| leap_days.first_listed(Day::of(date)).and_then(Day::date);
        assert_eq!(next(date(2024, 2, 29)), Some(date(2024, 2, 29)));
        assert_eq!(next(date(2024, 3, 1)), Some(date(2028, 2, 29)));
        assert_eq!(next(date(2096, 3, 1)), Some(date(2104, 2, 29)));
    }

    #[test]
    fn february_30_never_exists() {
        let never = days(1 << 2, 1 << 30, ALL_WEEKDAYS, DayRule::Both);
        assert!(never.is_none());
        assert_eq!(never.first_listed(Day(0)), None);
        assert!(!days(1 << 2, 1 << 30, 1, DayRule::Either).is_none());
        assert!(!days(1 << 2, 1 << 29, 1, DayRule::Both).is_none());
    }

    #[test]
    fn is_every_has_no_exception_in_400_years() {
        assert!(DaySet::every().is_every());
        assert_eq!(DaySet::every().first_unlisted(Day(0)), None);
        let not_sunday_the_29th = days(ALL_MONTHS, ALL_MONTH_DAYS & !(1 << 29), 0b111_1110, DayRule::Either);
        assert!(!not_sunday_the_29th.is_every());
        assert_eq!(not_sunday_the_29th.first_unlisted(Day::of(date(2026, 1, 1))), Some(Day::of(date(2026, 3, 29))));
        assert!(days(ALL_MONTHS, ALL_MONTH_DAYS, 1, DayRule::Either).is_every());
    }

    #[test]
    fn search_agrees_with_linear_scan() {
        let fridays_the_13th = days(ALL_MONTHS, 1 << 13, 1 << 5, DayRule::Both);
        let scanned = (0..20_000).map(Day).filter(|&day| fridays_the_13th.lists(day));
        let mut from = Day(0);
        for day in scanned {
            assert_eq!(fridays_the_13th.first_listed(from), Some(day));
            from = day.next();
        }
    }

    #[test]
    fn search_stops_at_end_of_calendar() {
        let last = Day::of(date(9999, 12, 31));
        assert_eq!(DaySet::every().first_listed(last), Some(last));
        assert_eq!(DaySet::every().first_listed(last.next()), None);
        assert!(!DaySet::every().lists(last.next()));
    }
}
