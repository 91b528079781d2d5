//! Which events follow from the change of a status.

use fivespot_api::conditions::{NodeTainted, Ready, Reason as _};
use fivespot_api::{Phase, ReclaimStatus, ScheduledMachineStatus};
use jiff::SignedDuration;

use super::messages::window_end;
use super::{Outcome, Purpose};
use crate::events::{Event, Reason};
use crate::input::DecisionInput;
use crate::reclaim_message::NO_REASON;

/// A second reclaim within this time for the same reason means that the owner had never stopped using the machine.
const REPEATED_RECLAIM_WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// The events between two statuses that were stored one after the other.
pub fn transitions(
    before: &ScheduledMachineStatus,
    after: &ScheduledMachineStatus,
    outcome: &Outcome,
    input: &DecisionInput<'_>,
) -> Vec<Event> {
    let mut events = machine_events(before, after);
    if before.phase != after.phase {
        events.extend(phase_event(before, after, input));
    }
    events.extend(kill_switch_event(before, after, outcome, input));
    let message = || after.message.clone().unwrap_or_default();
    if is_ready_reason(after, Ready::InvalidSpec) && before.message != after.message {
        events.push(Event::new(Reason::InvalidSpec, message()));
    }
    if let Some(failure) = &outcome.failure
        && before.message != after.message
    {
        let reason = match failure.purpose {
            Purpose::Create => Some(Reason::CreationFailed),
            Purpose::Remove => Some(Reason::DeletionFailed),
            Purpose::Maintain => None,
        };
        events.extend(reason.map(|reason| Event::new(reason, message())));
    }
    if let Some(conflict) = taint_conflict(after)
        && taint_conflict(before) != Some(conflict)
    {
        events.push(Event::new(Reason::TaintOwnershipConflict, conflict));
    }
    let disabled = |it: &ScheduledMachineStatus| it.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
    if disabled(after) && !disabled(before) {
        let reason = after.reclaim.as_ref().and_then(|it| it.reason.as_deref()).unwrap_or(NO_REASON);
        let note = format!(
            "Disabled the schedule after an emergency reclaim ({reason}); set spec.schedule.enabled to true when the owner \
             no longer needs the machine"
        );
        events.push(Event::new(Reason::EmergencyReclaimDisabledSchedule, note));
    }
    events
}

fn machine_events(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) -> Vec<Event> {
    let machine = |it: &ScheduledMachineStatus| it.machine_ref.as_ref().map(|it| (it.name.clone(), it.uid.clone()));
    let created = |name: &str| Event::new(Reason::MachineCreated, format!("Created Machine {name}"));
    let deleted = |name: &str| Event::new(Reason::MachineDeleted, format!("Machine {name} was deleted"));
    match (machine(before), machine(after)) {
        (None, Some((name, _))) => vec![created(&name)],
        (Some((name, _)), None) => vec![deleted(&name)],
        (Some((name, old)), Some((_, new))) if old != new => vec![deleted(&name), created(&name)],
        (None, None) | (Some(_), Some(_)) => Vec::new(),
    }
}

fn phase_event(
    before: &ScheduledMachineStatus,
    after: &ScheduledMachineStatus,
    input: &DecisionInput<'_>,
) -> Option<Event> {
    let message = after.message.clone().unwrap_or_default();
    match after.phase? {
        // The plan itself reports that a shutdown was cancelled.
        Phase::Active => (before.phase != Some(Phase::ShuttingDown)).then(|| {
            let until = input.spec.map_or_else(|_| String::new(), |spec| window_end(input, &spec.schedule));
            let note = format!("Schedule {} is open; {until}", input.requested.schedule);
            Event::new(Reason::ScheduleActivated, note)
        }),
        // Within the window, the Machine or the ScheduledMachine was deleted instead.
        Phase::ShuttingDown => {
            let closed = after.in_schedule == Some(false);
            (before.phase == Some(Phase::Active) && closed)
                .then(|| Event::new(Reason::ScheduleDeactivated, format!("Window closed. {message}")))
        }
        // A schedule that a reclaim disabled has an event of its own.
        Phase::Disabled => {
            (before.phase != Some(Phase::EmergencyRemove)).then(|| Event::new(Reason::ScheduleDisabled, message))
        }
        Phase::EmergencyRemove => Some(reclaim_event(before, after)),
        Phase::Pending | Phase::Inactive | Phase::Terminated | Phase::Error => None,
    }
}

fn reclaim_event(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) -> Event {
    let message = || after.message.clone().unwrap_or_default();
    repeated_reclaim(before, after).unwrap_or_else(|| Event::new(Reason::EmergencyReclaim, message()))
}

/// A machine that was lent again while its owner was still using the program for which it had been reclaimed.
fn repeated_reclaim(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) -> Option<Event> {
    let (last, this) = (before.reclaim.as_ref()?, after.reclaim.as_ref()?);
    let at = |reclaim: &ReclaimStatus| reclaim.requested_at.as_ref().map(|it| it.0);
    let between = at(this)?.duration_since(at(last)?);
    // Both times are from the clock of the owner's machine, which may have been stepped back.
    let is_recent = (SignedDuration::ZERO..REPEATED_RECLAIM_WINDOW).contains(&between);
    let repeated = last.reason == this.reason && is_recent && last.machine_uid != this.machine_uid;
    let reason = this.reason.as_deref().unwrap_or(NO_REASON);
    let note = format!(
        "Emergency reclaim ({reason}) again, {} min after the last one: the program was still running when the schedule \
         was enabled; stop it before enabling the schedule",
        between.as_mins()
    );
    repeated.then(|| Event::new(Reason::EmergencyReclaim, note))
}

fn kill_switch_event(
    before: &ScheduledMachineStatus,
    after: &ScheduledMachineStatus,
    outcome: &Outcome,
    input: &DecisionInput<'_>,
) -> Option<Event> {
    // The switch changes by an edit of the spec; the condition may change for other reasons meanwhile.
    let edited = before.observed_generation != after.observed_generation;
    // A switch that was set during a reclaim takes effect once the reclaim has finished.
    let reclaimed = matches!(before.phase, Some(Phase::EmergencyRemove | Phase::Disabled));
    let active = |status: &ScheduledMachineStatus| is_ready_reason(status, Ready::KillSwitchActive);
    match (active(before), active(after)) {
        (false, true) if edited || reclaimed => {
            let note = match &after.machine_ref {
                Some(machine) => {
                    format!("spec.killSwitch is true; removing Machine {} without draining", machine.name)
                }
                None => "spec.killSwitch is true; no machine is created until it is false".to_owned(),
            };
            Some(Event::new(Reason::KillSwitchActivated, note))
        }
        (true, false) if edited && outcome.failure.is_none() && !is_ready_reason(after, Ready::EmergencyReclaim) => {
            let next = if input.requested.enabled { "returning to the schedule" } else { "the schedule is disabled" };
            Some(Event::new(Reason::KillSwitchReset, format!("spec.killSwitch is false; {next}")))
        }
        (true | false, true | false) => None,
    }
}

fn is_ready_reason(status: &ScheduledMachineStatus, reason: Ready) -> bool {
    status.conditions.iter().any(|it| it.type_ == Ready::CONDITION && it.reason == reason.as_str())
}

fn taint_conflict(status: &ScheduledMachineStatus) -> Option<&str> {
    let condition = status.conditions.iter().find(|it| it.type_ == NodeTainted::CONDITION)?;
    (condition.reason == NodeTainted::TaintOwnershipConflict.as_str()).then_some(condition.message.as_str())
}

#[cfg(test)]
mod tests {
    use fivespot_api::ReclaimStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn reclaimed(phase: Phase, uid: &str, at: &str, reason: &str) -> ScheduledMachineStatus {
        let reclaim = ReclaimStatus {
            machine_uid: uid.to_owned(),
            reason: Some(reason.to_owned()),
            requested_at: Some(Time(at.parse().unwrap())),
            schedule_disabled: false,
            in_progress: phase == Phase::EmergencyRemove,
            count: 1,
        };
        ScheduledMachineStatus {
            phase: Some(phase),
            message: Some("removing the Machine".to_owned()),
            reclaim: Some(reclaim),
            ..ScheduledMachineStatus::default()
        }
    }

    fn event(last: &ScheduledMachineStatus, at: &str, reason: &str) -> Event {
        reclaim_event(last, &reclaimed(Phase::EmergencyRemove, "b", at, reason))
    }

    #[test]
    fn repeated_reclaim_for_the_same_program_is_reported() {
        let last = reclaimed(Phase::Active, "a", "2026-04-20T21:45:00Z", "process-match: java");
        let note = "Emergency reclaim (process-match: java) again, 3 min after the last one: the program was still \
                    running when the schedule was enabled; stop it before enabling the schedule";
        let repeated = Event::new(Reason::EmergencyReclaim, note);
        assert_eq!(event(&last, "2026-04-20T21:48:30Z", "process-match: java"), repeated);
        let usual = Event::new(Reason::EmergencyReclaim, "removing the Machine");
        assert_eq!(event(&last, "2026-04-20T22:48:30Z", "process-match: java"), usual);
        assert_eq!(event(&last, "2026-04-20T21:48:30Z", "process-match: idea"), usual);
    }
}
