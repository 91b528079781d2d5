//! Parses a [`Source`] into a [`Schedule`] and collects all errors.

use crate::calendar::DaySet;
use crate::cron::Cron;
use crate::days;
use crate::duration::parse_duration;
use crate::error::{Fault, Reason, ScheduleError, ScheduleErrors};
use crate::field::{Edge, Field};
use crate::firings::Firings;
use crate::hour_blocks::HourBlocks;
use crate::hours::Hours;
use crate::instant::InstantOrDate;
use crate::overrides::{Overrides, Span};
use crate::schedule::{Base, Schedule};
use crate::source::{OverrideSource, Source};
use crate::zone::Zone;

const MAX_ENTRIES: usize = 32;
const MAX_OVERRIDES: usize = 256;

/// A base schedule without its time zone.
enum Pattern {
    HourBlocks(HourBlocks),
    Firings { cron: Cron, length: i64 },
}

impl Schedule {
    /// Parses the fields of a schedule.
    ///
    /// # Errors
    ///
    /// Returns every error of every field, in the order of the fields, so that users can fix all of them with one edit.
    pub fn parse(source: &Source<'_>) -> Result<Self, ScheduleErrors> {
        let pattern = pattern(source);
        let zone = zone(source.timezone);
        let overrides = overrides(&source.overrides, zone.as_ref().ok());
        match (pattern, zone, overrides) {
            (Ok(pattern), Ok(zone), Ok(overrides)) => {
                let base = match pattern {
                    Pattern::HourBlocks(blocks) => Base::HourBlocks(blocks),
                    Pattern::Firings { cron, length } => Base::Firings(Firings::new(cron, length, &zone)),
                };
                Ok(Schedule { zone, base, overrides })
            }
            (pattern, zone, overrides) => {
                let zone = zone.err().map(ScheduleErrors::from);
                Err(ScheduleErrors::join(pattern.err().into_iter().chain(zone).chain(overrides.err())))
            }
        }
    }
}

fn pattern(source: &Source<'_>) -> Result<Pattern, ScheduleErrors> {
    match source.cron {
        Some(cron) => from_cron(source, cron),
        None => from_days_and_hours(source),
    }
}

fn from_cron(source: &Source<'_>, text: &str) -> Result<Pattern, ScheduleErrors> {
    let mut errors = Vec::new();
    if !source.days_of_week.is_empty() || !source.hours_of_day.is_empty() {
        errors.push(Fault::new(0, Reason::CronAndDaysOrHours).in_field(Field::Cron, text));
    }
    let cron = Cron::parse(text).map_err(|fault| errors.push(fault.in_field(Field::Cron, text)));
    let length = source.duration.map(|text| {
        parse_duration(text)
            .map(|length| length.as_secs())
            .map_err(|error| errors.push(Fault::new(error.position(), error).in_field(Field::Duration, text)))
    });
    match (cron, length) {
        (Ok(cron), None) => {
            let blocks = HourBlocks::new(cron.days, cron.hours);
            ScheduleErrors::check(Pattern::HourBlocks(blocks), errors)
        }
        (Ok(cron), Some(Ok(length))) => ScheduleErrors::check(Pattern::Firings { cron, length }, errors),
        (Err(()), _) | (_, Some(Err(()))) => Err(ScheduleErrors::join(errors.into_iter().map(ScheduleErrors::from))),
    }
}

fn from_days_and_hours(source: &Source<'_>) -> Result<Pattern, ScheduleErrors> {
    let mut errors = Vec::new();
    if source.days_of_week.is_empty() && source.hours_of_day.is_empty() {
        errors.push(Fault::new(0, Reason::NothingSet).in_field(Field::DaysOfWeek(None), ""));
    }
    let days = entries(Field::DaysOfWeek, source.days_of_week, &mut errors, days::parse);
    let hours = entries(Field::HoursOfDay, source.hours_of_day, &mut errors, Hours::parse);
    if let Some(text) = source.duration {
        errors.push(Fault::new(0, Reason::DurationWithoutCron).in_field(Field::Duration, text));
    }
    let days = days.into_iter().reduce(|all, some| all | some).map_or_else(DaySet::every, DaySet::on_weekdays);
    let hours = hours.into_iter().reduce(Hours::union).unwrap_or(Hours::ALL);
    ScheduleErrors::check(Pattern::HourBlocks(HourBlocks::new(days, hours)), errors)
}

fn entries<T>(
    field: fn(Option<usize>) -> Field,
    texts: &[String],
    errors: &mut Vec<ScheduleError>,
    parse: fn(&str) -> Result<T, Fault>,
) -> Vec<T> {
    if let Some(error) = too_many(field(None), texts.len(), MAX_ENTRIES) {
        errors.push(error);
    }
    let mut parsed = Vec::new();
    for (index, text) in texts.iter().take(MAX_ENTRIES).enumerate() {
        match parse(text) {
            Ok(entry) => parsed.push(entry),
            Err(fault) => errors.push(fault.in_field(field(Some(index)), text)),
        }
    }
    parsed
}

fn zone(name: &str) -> Result<Zone, ScheduleError> {
    if name.is_empty() {
        return Err(Fault::new(0, Reason::NoZone).in_field(Field::Timezone, name));
    }
    Zone::named(name).ok_or_else(|| Fault::new(0, Reason::UnknownZone).in_field(Field::Timezone, name))
}

fn overrides(sources: &[OverrideSource<'_>], zone: Option<&Zone>) -> Result<Overrides, ScheduleErrors> {
    let mut errors: Vec<_> = too_many(Field::Overrides(None), sources.len(), MAX_OVERRIDES).into_iter().collect();
    let mut spans = Vec::new();
    for (index, source) in sources.iter().take(MAX_OVERRIDES).enumerate() {
        let field = |edge| Field::Overrides(Some((index, edge)));
        let mut parse =
            |edge, text| InstantOrDate::parse(text).map_err(|fault| errors.push(fault.in_field(field(edge), text)));
        let edges = (parse(Edge::From, source.from), parse(Edge::Until, source.until));
        let (Ok(from), Ok(until)) = edges else {
            continue;
        };
        // A local date cannot be resolved without a valid time zone, whose own error is reported.
        let Some(zone) = zone else { continue };
        let span = Span { from: from.resolve(zone), until: until.resolve(zone), active: source.active };
        if span.from < span.until {
            spans.push(span);
        } else {
            errors.push(Fault::new(0, Reason::EndsBeforeItStarts).in_field(field(Edge::Until), source.until));
        }
    }
    ScheduleErrors::check(Overrides::flatten(&spans), errors)
}

fn too_many(field: Field, count: usize, limit: usize) -> Option<ScheduleError> {
    (count > limit).then(|| Fault::new(0, Reason::TooManyEntries { count, limit }).in_field(field, ""))
}
