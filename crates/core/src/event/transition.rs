//! What is worth telling about the way from one status to the next.

use fivespot_api::conditions::{NodeTainted, Ready, Reason as _};
use fivespot_api::{Phase, ScheduledMachineStatus};

use super::{Event, Reason};
use crate::status::{Doing, Done};

/// What happened between two statuses that were stored one after the other.
pub fn transitions(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus, done: &Done) -> Vec<Event> {
    let message = after.message.clone().unwrap_or_default();
    let told = |reason: Reason| Event::new(reason, message.clone());
    let machine = |it: &ScheduledMachineStatus| it.machine_ref.as_ref().map(|it| (it.name.clone(), it.uid.clone()));
    let mut events = Vec::new();

    match (machine(before), machine(after)) {
        (None, Some((name, _))) => {
            events.push(Event::new(Reason::MachineCreated, format!("Machine {name} was created")));
        }
        (Some((name, _)), None) => events.push(Event::new(Reason::MachineDeleted, format!("Machine {name} is gone"))),
        (Some((name, old)), Some((_, new))) if old != new => {
            events.push(Event::new(Reason::MachineDeleted, format!("Machine {name} is gone")));
            events.push(Event::new(Reason::MachineCreated, format!("Machine {name} was created")));
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
    let ready = |it: &ScheduledMachineStatus| {
        it.conditions.iter().find(|it| it.type_ == Ready::CONDITION).map(|it| it.reason.clone())
    };
    let is = |status: &ScheduledMachineStatus, reason: Ready| ready(status).as_deref() == Some(reason.as_str());
    if before.phase != after.phase {
        events.extend(phase_reached(before, after).map(told));
    }
    // The switch is turned by an edit of the spec; what else happens to the condition meanwhile is no news of it.
    let edited = before.observed_generation != after.observed_generation;
    // One that was turned on during a reclaim counts from its end on.
    let reclaimed = matches!(before.phase, Some(Phase::EmergencyRemove | Phase::Disabled));
    match (is(before, Ready::KillSwitchActive), is(after, Ready::KillSwitchActive)) {
        (false, true) if edited || reclaimed => events.push(told(Reason::KillSwitchActivated)),
        (true, false) if edited && done.failure.is_none() && !is(after, Ready::EmergencyReclaim) => {
            events.push(Event::new(Reason::KillSwitchReset, "killSwitch is off: back to the schedule"));
        }
        _ => {}
    }
    if is(after, Ready::InvalidSpec) && before.message != after.message {
        events.push(told(Reason::InvalidSpec));
    }
    if let Some(failure) = &done.failure
        && before.message != after.message
    {
        let reason = match failure.doing {
            Doing::Creating => Some(Reason::CreationFailed),
            Doing::Removing => Some(Reason::DeletionFailed),
            Doing::Keeping | Doing::Tainting | Doing::Projecting => None,
        };
        events.extend(reason.map(told));
    }
    if let Some(conflict) = taint_conflict(after)
        && taint_conflict(before) != Some(conflict)
    {
        events.push(Event::new(Reason::TaintOwnershipConflict, conflict));
    }
    let disabled = |it: &ScheduledMachineStatus| it.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
    if disabled(after) && !disabled(before) {
        let note = "schedule.enabled was set to false, so that the machine does not come back by itself";
        events.push(Event::new(Reason::EmergencyReclaimDisabledSchedule, note));
    }
    events
}

/// What is said of a taint of somebody else's that is in the way.
fn taint_conflict(status: &ScheduledMachineStatus) -> Option<&str> {
    let condition = status.conditions.iter().find(|it| it.type_ == NodeTainted::CONDITION)?;
    (condition.reason == NodeTainted::TaintOwnershipConflict.as_str()).then_some(condition.message.as_str())
}

fn phase_reached(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) -> Option<Reason> {
    let from = before.phase;
    match after.phase? {
        // A machine that is taken back is told of by the decision itself.
        Phase::Active => (from != Some(Phase::ShuttingDown)).then_some(Reason::ScheduleActivated),
        // One that leaves within its window was deleted, or its object is.
        Phase::ShuttingDown => {
            let closed = after.in_schedule == Some(false);
            (from == Some(Phase::Active) && closed).then_some(Reason::ScheduleDeactivated)
        }
        // A schedule that a reclaim disabled has an event of its own.
        Phase::Disabled => (from != Some(Phase::EmergencyRemove)).then_some(Reason::ScheduleDisabled),
        Phase::EmergencyRemove => Some(Reason::EmergencyReclaim),
        Phase::Pending | Phase::Inactive | Phase::Terminated | Phase::Error => None,
    }
}
