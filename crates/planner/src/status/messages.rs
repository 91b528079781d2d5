//! Messages of the status and its conditions.

use fivespot_api::conditions::{MachineReady, Ready, ReferencesValid, Scheduled};
use fivespot_schedule::Schedule;
use fivespot_validation::validate::SpecErrors;
use jiff::Timestamp;

use super::{Outcome, rejected_pods};
use crate::children::ChildNames;
use crate::input::DecisionInput;
use crate::observed::{Absence, MachineHealth, Node, Observed};
use crate::plan::DesiredStatus;
use crate::reclaim_message;

/// Message of the status and of condition `Ready`.
pub(super) fn message(desired: &DesiredStatus, input: &DecisionInput<'_>, outcome: &Outcome) -> String {
    let mut message = desired.message.clone();
    if let Some(rejected) = rejected_pods::describe(&outcome.rejected_pods) {
        message = format!("{message}, {rejected}");
    }
    if let Some(at) = desired.delete_by {
        message = format!("{message}; Machine will be deleted no later than {}", local_time(input, at));
    }
    if desired.ready == Ready::ScheduleInactive
        && let Ok(spec) = input.spec
    {
        message = format!("{message}; {}", next_opening(input, &spec.schedule));
    }
    match agent_error(outcome) {
        Some(error) if error != message => format!("{message}; {error}"),
        Some(_) | None => message,
    }
}

pub(super) fn agent_error(outcome: &Outcome) -> Option<String> {
    let error = outcome.agent_error.as_ref()?;
    Some(format!("Owner cannot reclaim the machine because the agent is not rolled out: {error}"))
}

pub(super) fn scheduled(input: &DecisionInput<'_>, desired: &DesiredStatus) -> (Scheduled, String) {
    if let Some(errors) = input.spec.err().and_then(SpecErrors::of_schedule) {
        return (Scheduled::InvalidSchedule, errors.to_string());
    }
    let reclaim = desired.reclaim.as_ref().filter(|reclaim| reclaim.schedule_disabled);
    let schedule = &input.requested.schedule;
    match (reclaim, input.requested.enabled, input.spec) {
        (Some(reclaim), _, _) => {
            (Scheduled::EmergencyReclaimDisabledSchedule, reclaim_message::disabled(reclaim.reason.as_deref()))
        }
        (None, false, _) => {
            (Scheduled::ScheduleDisabled, "Schedule is disabled: spec.schedule.enabled is false".to_owned())
        }
        (None, true, Ok(spec)) if spec.schedule.is_open(input.now) => {
            let until = window_end(input, &spec.schedule);
            (Scheduled::ScheduleActive, format!("Current time is within schedule: {schedule}; {until}"))
        }
        (None, true, Ok(spec)) => {
            let next = next_opening(input, &spec.schedule);
            (Scheduled::ScheduleInactive, format!("Current time is outside schedule: {schedule}; {next}"))
        }
        (None, true, Err(_)) => {
            (Scheduled::ScheduleInactive, "Schedule is not evaluated until the spec is valid".to_owned())
        }
    }
}

/// "window closes Mon 2026-11-16 18:00 CET".
pub(super) fn window_end(input: &DecisionInput<'_>, schedule: &Schedule) -> String {
    match schedule.current_close(input.now) {
        Some(close) => format!("window closes {}", local_time(input, close)),
        None => "window never closes".to_owned(),
    }
}

/// "next window opens Tue 2026-11-17 09:00 CET".
fn next_opening(input: &DecisionInput<'_>, schedule: &Schedule) -> String {
    match schedule.next_opening(input.now) {
        Some(opening) => format!("next window opens {}", local_time(input, opening)),
        None => "no further window".to_owned(),
    }
}

/// An instant in the time zone of the schedule.
fn local_time(input: &DecisionInput<'_>, at: Timestamp) -> String {
    let zone = input.spec.map_or(jiff::tz::TimeZone::UTC, |spec| spec.schedule.time_zone().clone());
    let local = at.to_zoned(zone);
    let format = if local.second() == 0 { "%a %Y-%m-%d %H:%M %Z" } else { "%a %Y-%m-%d %H:%M:%S %Z" };
    local.strftime(format).to_string()
}

pub(super) fn machine_ready(name: &str, observed: &Observed, outcome: &Outcome) -> (MachineReady, String) {
    // The same text for a Machine that was just created and for one that is being provisioned saves a status write.
    let waiting = || {
        let message = format!("Machine {} has no Node yet", ChildNames::of(name).machine);
        (MachineReady::MachineNotReady, message)
    };
    let Some(machine) = observed.machine.managed() else {
        return match &outcome.machine {
            Some(_) => waiting(),
            None => (MachineReady::NoMachine, "This ScheduledMachine has no Machine".to_owned()),
        };
    };
    match (&machine.health, &observed.node) {
        (MachineHealth::Failed(reason), _) => (MachineReady::MachineFailed, format!("Machine failed: {reason}")),
        (MachineHealth::Running | MachineHealth::Provisioning, Node::Unreachable(cause)) => {
            (MachineReady::WorkloadClusterUnreachable, format!("Cannot access the workload cluster: {cause}"))
        }
        (MachineHealth::Running, Node::Managed(node)) if node.ready => {
            let message = format!("CAPI Machine is in Running state and Node {} is Ready", node.name);
            (MachineReady::MachineReady, message)
        }
        (MachineHealth::Running | MachineHealth::Provisioning, Node::Managed(node)) if !node.ready => {
            (MachineReady::MachineNotReady, format!("Node {} is not Ready", node.name))
        }
        (
            MachineHealth::Running,
            Node::NotCached(absence @ Absence::NoKubeconfig { .. })
            | Node::Unidentified(absence @ Absence::NoKubeconfig { .. }),
        ) => (MachineReady::WorkloadClusterUnreachable, absence.to_string()),
        (MachineHealth::Running, Node::Absent(absence) | Node::NotCached(absence) | Node::Unidentified(absence)) => {
            (MachineReady::MachineNotReady, absence.to_string())
        }
        (MachineHealth::Running, Node::Connecting | Node::Managed(_)) | (MachineHealth::Provisioning, _) => waiting(),
    }
}

pub(super) fn references(desired: &DesiredStatus, input: &DecisionInput<'_>, outcome: &Outcome) -> String {
    if let Some(failure) = outcome.failure.as_ref().filter(|failure| failure.references.is_some()) {
        return failure.message.clone();
    }
    let cluster = input.spec.map_or_else(|_| "Cluster".to_owned(), |spec| format!("Cluster {}", spec.cluster_name));
    match desired.references {
        ReferencesValid::Valid => "All references are valid".to_owned(),
        ReferencesValid::ValidNextWindow => {
            "All references are valid; the spec was edited after the Machine was created and applies from the next window"
                .to_owned()
        }
        ReferencesValid::ClusterNotFound => format!("{cluster} does not exist; create it or correct spec.clusterName"),
        ReferencesValid::ClusterDeleting => format!("{cluster} is being deleted"),
        ReferencesValid::ClusterPaused => format!("{cluster} is paused"),
        ReferencesValid::InvalidSpec | ReferencesValid::GroupNotAllowed | ReferencesValid::NamespaceNotAllowed => {
            input.spec.map_or_else(ToString::to_string, |_| String::new())
        }
        ReferencesValid::NameConflict => input.observed.name_conflict().unwrap_or_else(|| desired.message.clone()),
        ReferencesValid::KindNotFound => desired.message.clone(),
    }
}
