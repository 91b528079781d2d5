//! What is worth telling about the way from one status to the next.

use fivespot_api::conditions::{NodeTainted, Ready, Reason as _};
use fivespot_api::{Phase, ScheduledMachineStatus};

use jiff::SignedDuration;

use super::{Event, Reason};
use crate::status::{Doing, Done};

/// Who asks for a machine again within this time, for the same program, has never stopped using it.
const SAME_USE: SignedDuration = SignedDuration::from_mins(15);

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
        let reached = phase_reached(before, after).map(|reason| match reason {
            Reason::EmergencyReclaim => given_back_again(before, after).unwrap_or_else(|| told(reason)),
            _ => told(reason),
        });
        events.extend(reached);
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
            Doing::Keeping => None,
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
        let note = "schedule.enabled was set to false, so that the machine does not come back by itself; set it to true \
                    when its owner does not need it any more";
        events.push(Event::new(Reason::EmergencyReclaimDisabledSchedule, note));
    }
    events
}

/// Of a machine that was lent out while its owner still used the program for which it was given back.
fn given_back_again(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) -> Option<Event> {
    let (last, this) = (before.reclaim.as_ref()?, after.reclaim.as_ref()?);
    let between = this.requested_at.as_ref()?.0.duration_since(last.requested_at.as_ref()?.0);
    let again = last.reason == this.reason && between < SAME_USE && last.machine_uid != this.machine_uid;
    let why = this.reason.as_deref().unwrap_or("no reason given");
    let note = format!(
        "given back to its owner again ({why}), {} min after the last time: the program was still in use when the \
         schedule was enabled; end it first, then enable the schedule",
        between.as_mins()
    );
    again.then(|| Event::new(Reason::EmergencyReclaim, note))
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
            in_progress: false,
            count: 1,
        };
        ScheduledMachineStatus {
            phase: Some(phase),
            message: Some("given back to its owner".to_owned()),
            reclaim: Some(reclaim),
            ..ScheduledMachineStatus::default()
        }
    }

    fn told(last: &ScheduledMachineStatus, at: &str, reason: &str) -> Vec<Event> {
        transitions(last, &reclaimed(Phase::EmergencyRemove, "b", at, reason), &Done::default())
    }

    #[test]
    fn a_machine_that_was_lent_out_into_the_same_use_is_told_so() {
        let last = reclaimed(Phase::Active, "a", "2026-04-20T21:45:00Z", "process-match: java");
        let note = "given back to its owner again (process-match: java), 3 min after the last time: the program was \
                    still in use when the schedule was enabled; end it first, then enable the schedule";
        assert_eq!(
            told(&last, "2026-04-20T21:48:30Z", "process-match: java"),
            [Event::new(Reason::EmergencyReclaim, note)]
        );
        let usual = [Event::new(Reason::EmergencyReclaim, "given back to its owner")];
        assert_eq!(told(&last, "2026-04-20T22:48:30Z", "process-match: java"), usual);
        assert_eq!(told(&last, "2026-04-20T21:48:30Z", "process-match: idea"), usual);
    }
}
