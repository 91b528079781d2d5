//! `spec.schedule`: maps the errors of the schedule parser to rules.

use fivespot_api::ScheduleSpec;
use fivespot_schedule::{Field, OverrideSource, Reason, Schedule, ScheduleError, Source};
use regex_lite::Regex;

use super::{EnforcedBy, ErrorList, SpecError, Standard};
use crate::{patterns, rules};

pub(super) fn check(spec: &ScheduleSpec, standard: Standard, errors: &mut ErrorList) -> Option<Schedule> {
    let checkpoint = errors.checkpoint();
    let is_incomplete = spec.cron.is_none() && (spec.days_of_week.is_empty() != spec.hours_of_day.is_empty());
    match standard {
        Standard::Admission if is_incomplete => {
            let (missing, all, unit) = if spec.days_of_week.is_empty() {
                ("daysOfWeek", "mon-sun", "day")
            } else {
                ("hoursOfDay", "0-23", "hour")
            };
            errors.add(
                format!("spec.schedule.{missing}"),
                rules::WINDOW_COMPLETE,
                Some(format!("{missing} is empty: use [\"{all}\"] for every {unit}")),
            );
        }
        Standard::Admission | Standard::Stored => {}
    }
    match Schedule::parse(&source(spec)) {
        Ok(schedule) => errors.none_since(checkpoint).then_some(schedule),
        Err(schedule_errors) => {
            errors.0.extend(schedule_errors.iter().map(|error| SpecError {
                field: format!("spec.schedule.{}", error.field),
                rule: rule(error).to_owned(),
                detail: Some(detail(error)),
                enforced_by: enforced_by(error),
            }));
            None
        }
    }
}

fn source(spec: &ScheduleSpec) -> Source<'_> {
    Source {
        days_of_week: &spec.days_of_week,
        hours_of_day: &spec.hours_of_day,
        cron: spec.cron.as_deref(),
        duration: spec.duration.as_deref(),
        timezone: &spec.timezone,
        overrides: spec
            .overrides
            .iter()
            .map(|it| OverrideSource { from: &it.from, until: &it.until, active: it.active })
            .collect(),
    }
}

/// What the message of the rule does not say.
fn detail(error: &ScheduleError) -> String {
    match error.reason {
        Reason::CronAndDaysOrHours => "set one or the other, not both".to_owned(),
        Reason::NothingSet => error.reason.to_string(),
        _ => error.to_string(),
    }
}

fn rule(error: &ScheduleError) -> &'static str {
    match error.reason {
        Reason::CronAndDaysOrHours => return rules::CRON_OR_WINDOW,
        Reason::NothingSet => return rules::WINDOW_COMPLETE,
        _ => {}
    }
    match error.field {
        Field::DaysOfWeek(_) => rules::DAYS_FORMAT,
        Field::HoursOfDay(_) => rules::HOURS_FORMAT,
        Field::Cron => rules::CRON_FORMAT,
        Field::Duration => rules::WINDOW_DURATION,
        Field::Timezone => rules::TIMEZONE,
        Field::Overrides(_) => rules::OVERRIDES,
    }
}

/// The policy checks only the format of a text. A text with a valid format that does not parse is left to the controller.
fn enforced_by(error: &ScheduleError) -> EnforcedBy {
    let pattern = match error.field {
        Field::Timezone => return EnforcedBy::Controller,
        // The policy checks these fields completely.
        Field::DaysOfWeek(_) | Field::Duration => return EnforcedBy::Policy,
        Field::Cron if error.reason == Reason::CronAndDaysOrHours => return EnforcedBy::Policy,
        Field::Cron => patterns::cron(),
        Field::HoursOfDay(_) => patterns::hours(),
        Field::Overrides(_) => patterns::INSTANT.to_owned(),
    };
    let is_well_formed = Regex::new(&pattern).expect("patterns are valid regular expressions").is_match(&error.text);
    if is_well_formed { EnforcedBy::Controller } else { EnforcedBy::Policy }
}
