//! Time zones: maps wall clock readings to instants and back.
//!
//! Instants are whole seconds since 1970. Every offset and every transition in the database is a whole number of seconds, so
//! nothing is lost.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::calendar::{CYCLE, DAY, HOUR, Wall};

/// Offsets from UTC are smaller than this, in both directions.
pub(crate) const WIDEST_OFFSET: i64 = 26 * HOUR;

/// A transition sets the wall clock back by less than this (see [`WIDEST_OFFSET`]). After this time, the wall clock is past
/// every reading that it had reached before the transition.
const MAX_SETBACK: i64 = 3 * DAY;

/// Before the first transition of any zone (the year 1700).
pub(crate) const BEGINNING: i64 = -8_520_336_000;

/// From here on (the year 2100) every zone of the database follows a yearly rule, so its transitions repeat with the
/// calendar.
pub(crate) const RULES_ONLY: i64 = 4_102_444_800;

/// A time zone of the bundled database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone(TimeZone);

/// A time span with a constant offset from UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) offset: i64,
    /// The end of the span, exclusive, or `None` if it never ends.
    pub(crate) end: Option<i64>,
}

/// A change of the offset from UTC: when it happens, and the offset from then on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    pub(crate) at: i64,
    pub(crate) offset: i64,
}

impl Zone {
    pub(crate) fn named(name: &str) -> Option<Self> {
        let zone = TimeZoneDatabase::bundled().get(name).ok()?;
        (!zone.is_unknown()).then_some(Self(zone))
    }

    pub(crate) fn time_zone(&self) -> &TimeZone {
        &self.0
    }

    /// The wall clock reading at an instant.
    pub(crate) fn reading(&self, at: i64) -> Wall {
        Wall(at + self.offset(at))
    }

    /// The stretch that contains an instant.
    pub(crate) fn stretch(&self, at: i64) -> Stretch {
        Stretch { offset: self.offset(at), end: self.transitions_after(at).next().map(|transition| transition.at) }
    }

    /// The latest reading that the wall clock has shown up to `at`. Unlike the reading, it never decreases.
    pub(crate) fn latest_reading(&self, at: i64) -> Wall {
        let start = at - MAX_SETBACK;
        let mut offset = self.offset(start);
        let mut latest = start + offset;
        for transition in self.transitions_after(start).take_while(|transition| transition.at <= at) {
            latest = latest.max(transition.at - 1 + offset);
            offset = transition.offset;
        }
        Wall(latest.max(at + offset))
    }

    /// The first instant at which the wall clock has reached a reading: the end of the gap if the reading is skipped, the
    /// first occurrence if it is repeated.
    pub(crate) fn first_reaching(&self, wall: Wall) -> i64 {
        let start = wall.0 - WIDEST_OFFSET;
        let mut offset = self.offset(start);
        for transition in self.transitions_after(start) {
            if wall.0 - offset < transition.at {
                break;
            }
            if wall.0 <= transition.at + transition.offset {
                return transition.at;
            }
            offset = transition.offset;
        }
        wall.0 - offset
    }

    pub(crate) fn transitions_after(&self, at: i64) -> impl Iterator<Item = Transition> + '_ {
        self.0.following(timestamp(at)).map(|transition| Transition {
            at: transition.timestamp().as_second(),
            offset: transition.offset().seconds().into(),
        })
    }

    fn offset(&self, at: i64) -> i64 {
        self.0.to_offset(timestamp(at)).seconds().into()
    }
}

/// The last instant that a search from `at` has to consider: what has not happened by then never happens.
pub(crate) fn horizon(at: i64) -> i64 {
    at.max(RULES_ONLY) + CYCLE + MAX_SETBACK
}

/// The instant, or the nearest one that can be represented.
fn timestamp(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::named(name).unwrap()
    }

    fn instant(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    /// A reading, parsed as if it were an instant in UTC.
    fn reading(text: &str) -> Wall {
        Wall(instant(&format!("{text}Z")))
    }

    #[test]
    fn zones_repeat_with_the_calendar_from_2100() {
        let database = TimeZoneDatabase::bundled();
        for name in database.available() {
            let zone = zone(name.as_str());
            let cycle = |start: i64| {
                let transitions =
                    zone.transitions_after(start).take_while(move |transition| transition.at <= start + CYCLE);
                transitions.map(move |transition| (transition.at - start, transition.offset)).collect::<Vec<_>>()
            };
            assert_eq!(cycle(RULES_ONLY), cycle(RULES_ONLY + CYCLE), "{name}");
            assert_eq!(zone.offset(RULES_ONLY), zone.offset(RULES_ONLY + CYCLE), "{name}");
        }
    }

    #[test]
    fn no_transition_before_beginning() {
        let database = TimeZoneDatabase::bundled();
        for name in database.available() {
            let first = zone(name.as_str()).transitions_after(i64::MIN).next();
            assert!(first.is_none_or(|first| first.at > BEGINNING), "{name}: {first:?}");
        }
    }

    #[test]
    fn offsets_are_below_widest_offset() {
        assert!(i64::from(jiff::tz::Offset::MAX.seconds()) < WIDEST_OFFSET);
        assert!(i64::from(jiff::tz::Offset::MIN.seconds()) > -WIDEST_OFFSET);
    }

    #[test]
    fn skipped_reading_is_reached_at_end_of_gap() {
        let paris = zone("Europe/Paris");
        let gap = instant("2026-03-29T01:00:00Z");
        assert_eq!(paris.first_reaching(reading("2026-03-29T02:00:00")), gap);
        assert_eq!(paris.first_reaching(reading("2026-03-29T02:59:59")), gap);
        assert_eq!(paris.first_reaching(reading("2026-03-29T03:00:00")), gap);
        assert_eq!(paris.first_reaching(reading("2026-03-29T03:00:01")), gap + 1);
    }

    #[test]
    fn skipped_day_is_reached_at_end_of_gap() {
        let apia = zone("Pacific/Apia");
        assert_eq!(apia.first_reaching(reading("2011-12-30T12:00:00")), instant("2011-12-30T10:00:00Z"));
    }

    #[test]
    fn repeated_reading_is_reached_at_first_occurrence() {
        let paris = zone("Europe/Paris");
        assert_eq!(paris.first_reaching(reading("2026-10-25T02:30:00")), instant("2026-10-25T00:30:00Z"));
    }

    #[test]
    fn latest_reading_is_constant_during_repeated_hour() {
        let paris = zone("Europe/Paris");
        let latest = |text| paris.latest_reading(instant(text));
        assert_eq!(latest("2026-10-25T00:59:59Z"), reading("2026-10-25T02:59:59"));
        assert_eq!(latest("2026-10-25T01:30:00Z"), reading("2026-10-25T02:59:59"));
        assert_eq!(latest("2026-10-25T02:00:00Z"), reading("2026-10-25T03:00:00"));
    }

    #[test]
    fn zone_names() {
        assert!(Zone::named("UTC").is_some() && Zone::named("Europe/Kyiv").is_some());
        for name in ["Mars/Olympus", "Etc/Unknown", "UTC+1", "CEST-1CET", "/etc/localtime", "../UTC", " UTC"] {
            assert_eq!(Zone::named(name), None, "{name}");
        }
    }
}
