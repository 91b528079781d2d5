//! Everything that one decision depends on.

use fivespot_api::{ScheduleSpec, ScheduledMachineSpec};
use fivespot_schedule::parse_duration;
use fivespot_validation::validate::{SpecErrors, ValidSpec};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::agent_config;
use crate::observed::Observed;

/// Input of [`decide`](crate::decide::decide).
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    pub requested: &'a RequestedState,
    pub spec: Result<&'a ValidSpec, &'a SpecErrors>,
    pub observed: &'a Observed,
    pub now: Timestamp,
}

impl DecisionInput<'_> {
    /// When the shutdown in progress started. A stored time that is in the future counts as now: the clock was stepped back,
    /// or a user wrote it, and the deadlines of the shutdown would never come.
    pub fn shutdown_started_at(&self) -> Option<Timestamp> {
        self.observed.stored.shutdown_started_at.map(|started| started.min(self.now))
    }

    /// When the schedule opens or closes next.
    pub fn next_boundary(&self) -> Option<Timestamp> {
        self.spec.ok().and_then(|spec| spec.schedule.next_change(self.now))
    }
}

/// The part of an object that is usable even if its spec does not parse, so that an invalid spec blocks neither deletion
/// nor `killSwitch` nor a reclaim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch that users set independently")]
pub struct RequestedState {
    pub deleted: bool,
    pub kill_switch: bool,
    pub enabled: bool,
    /// Configuration of the reclaim agent; `None` if `killIfCommands` is empty, and then no reclaim request counts.
    pub agent_config: Option<String>,
    pub graceful_shutdown_timeout: SignedDuration,
    pub node_drain_timeout: SignedDuration,
    /// The schedule as the user wrote it, for messages: "mon-fri 9-17".
    pub schedule: String,
}

/// Used where a timeout does not parse: the default of the field.
const DEFAULT_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

impl RequestedState {
    pub fn of(metadata: &ObjectMeta, spec: &ScheduledMachineSpec) -> Self {
        let timeout = |text: &str| parse_duration(text).unwrap_or(DEFAULT_TIMEOUT);
        RequestedState {
            deleted: metadata.deletion_timestamp.is_some(),
            kill_switch: spec.kill_switch,
            enabled: spec.schedule.enabled,
            agent_config: agent_config::render(spec.kill_if_commands.as_deref().unwrap_or_default()),
            graceful_shutdown_timeout: timeout(&spec.graceful_shutdown_timeout),
            node_drain_timeout: timeout(&spec.node_drain_timeout),
            schedule: summarize(&spec.schedule),
        }
    }

    /// The drain is part of the shutdown and never outlasts it.
    pub fn drain_timeout(&self) -> SignedDuration {
        self.node_drain_timeout.min(self.graceful_shutdown_timeout)
    }

    /// Whether a shutdown that started at `started` has exceeded its timeout.
    pub fn is_overdue(&self, started: Timestamp, now: Timestamp) -> bool {
        now.duration_since(started) > self.graceful_shutdown_timeout
    }
}

/// Limit of the summary of a schedule: a list may have 32 entries of 128 characters.
const MAX_SUMMARY_CHARS: usize = 120;

/// "mon-fri 9-17", "cron 0 9 * * 1-5 for 9h".
fn summarize(schedule: &ScheduleSpec) -> String {
    let summary = match (&schedule.cron, &schedule.duration) {
        (Some(cron), Some(duration)) => format!("cron {cron} for {duration}"),
        (Some(cron), None) => format!("cron {cron}"),
        (None, _) => {
            let every = |entries: &[String], all: &str| {
                if entries.is_empty() { all.to_owned() } else { entries.join(",") }
            };
            format!("{} {}", every(&schedule.days_of_week, "mon-sun"), every(&schedule.hours_of_day, "0-23"))
        }
    };
    match summary.char_indices().nth(MAX_SUMMARY_CHARS) {
        Some((end, _)) => format!("{}…", &summary[..end]),
        None => summary,
    }
}
