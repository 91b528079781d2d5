//! `spec.schedule`: the schedule's own parser judges it, and its findings are told in the words of the rules.

use fivespot_api::ScheduleSpec;
use fivespot_schedule::{Field, OverrideSource, Reason, Schedule, ScheduleError, Source};

use regex_lite::Regex;

use super::{Findings, Judge, SpecError, Standard, rules};
use crate::admission::form;

pub(super) fn check(spec: &ScheduleSpec, standard: Standard, findings: &mut Findings) -> Option<Schedule> {
    let mark = findings.mark();
    let half_a_window = spec.cron.is_none() && (spec.days_of_week.is_empty() != spec.hours_of_day.is_empty());
    match standard {
        Standard::Admission if half_a_window => {
            let (missing, every) =
                if spec.days_of_week.is_empty() { ("daysOfWeek", "mon-sun") } else { ("hoursOfDay", "0-23") };
            findings.add(
                format!("spec.schedule.{missing}"),
                rules::WINDOW_COMPLETE,
                Some(format!("{missing} is empty: write [\"{every}\"] for all")),
            );
        }
        Standard::Admission | Standard::Stored => {}
    }
    match Schedule::parse(&source(spec)) {
        Ok(schedule) => findings.none_since(mark).then_some(schedule),
        Err(errors) => {
            for error in &errors {
                findings.0.push(SpecError {
                    field: format!("spec.schedule.{}", error.field),
                    rule: rule(error).to_owned(),
                    detail: Some(detail(error)),
                    judge: judge(error),
                });
            }
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

/// What the rule's own words leave open.
fn detail(error: &ScheduleError) -> String {
    match error.reason {
        Reason::CronAndDaysOrHours => "set one or the other, not both".to_owned(),
        Reason::NothingSet => "nothing says when to open: set daysOfWeek and hoursOfDay, or cron".to_owned(),
        _ => error.to_string(),
    }
}

/// The rule that speaks of the field an error is about.
fn rule(error: &ScheduleError) -> &'static str {
    match error.reason {
        Reason::CronAndDaysOrHours => return rules::CRON_OR_WINDOW,
        Reason::NothingSet => return rules::WINDOW_COMPLETE,
        _ => {}
    }
    match error.field {
        Field::DaysOfWeek(_) => rules::DAYS_FORM,
        Field::HoursOfDay(_) => rules::HOURS_FORM,
        // A spec asks about no instants.
        Field::Cron | Field::Asked(_) => rules::CRON_FORM,
        Field::Duration => rules::WINDOW_DURATION,
        Field::Timezone => rules::TIMEZONE,
        Field::Overrides(_) => rules::OVERRIDES,
    }
}

/// The policy looks at the form of a text alone, so what has the right form and is wrong all the same is the controller's.
fn judge(error: &ScheduleError) -> Judge {
    let form = match error.field {
        Field::Timezone => return Judge::Controller,
        // Which fields there are is the policy's to say, and the form of these says all there is to say.
        Field::DaysOfWeek(_) | Field::Duration => return Judge::Policy,
        Field::Cron if error.reason == Reason::CronAndDaysOrHours => return Judge::Policy,
        Field::Cron | Field::Asked(_) => form::cron(),
        Field::HoursOfDay(_) => form::hours(),
        Field::Overrides(_) => form::MOMENT.to_owned(),
    };
    let has_the_form = Regex::new(&form).expect("a form is a regular expression").is_match(&error.text);
    if has_the_form { Judge::Controller } else { Judge::Policy }
}
