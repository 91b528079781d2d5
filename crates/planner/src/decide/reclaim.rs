//! Emergency reclaim: the owner takes the machine back.
//!
//! The reclaim is stored before anything else happens and completed whatever happens to the Node meanwhile.

use fivespot_api::conditions::Ready;
use fivespot_api::{Phase, ReclaimStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{agent_rollout, desired_status, reclaim_request};
use crate::input::DecisionInput;
use crate::plan::{Action, DesiredStatus, Plan, Step};
use crate::reclaim_message::{self, NO_REASON};

/// Removes the request from the Node. For a reclaim this is the last step; a request that does not count is only cleared.
pub(super) fn clear_request(input: &DecisionInput<'_>) -> Option<Step> {
    reclaim_request::on_node(input).map(|_| Step::Run(Action::ClearReclaimRequest))
}

/// Whether the stored record says that the schedule is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleRecord {
    /// What is stored first.
    NotYetDisabled,
    /// What is stored when all steps have succeeded. It happens once per reclaim, so that a later edit by a user wins.
    Disabled,
}

/// The status while the machine is being removed.
pub(super) fn status(input: &DecisionInput<'_>, schedule: ScheduleRecord) -> DesiredStatus {
    let reclaim = record(input, schedule).map(|reclaim| ReclaimStatus { in_progress: true, ..reclaim });
    let reason = reclaim.as_ref().and_then(|reclaim| reclaim.reason.as_deref()).unwrap_or(NO_REASON);
    let machine = input.observed.machine.managed().map_or_else(String::new, |machine| format!(" {}", machine.name));
    let message = format!("Emergency reclaim ({reason}); removing Machine{machine} without draining");
    DesiredStatus {
        reclaim,
        ..desired_status::keeping(input, Phase::EmergencyRemove, Ready::EmergencyReclaim, message)
    }
}

fn record(input: &DecisionInput<'_>, schedule: ScheduleRecord) -> Option<ReclaimStatus> {
    let stored = &input.observed.stored;
    let previous = stored.reclaim.as_ref();
    let current = match reclaim_request::new_request(input) {
        Some((machine, request)) if !stored.reclaim_in_progress() => Some(ReclaimStatus {
            machine_uid: machine.uid.clone(),
            reason: request.reason.clone(),
            requested_at: request.at.map(Time),
            schedule_disabled: false,
            in_progress: true,
            count: previous.map_or(0, |reclaim| reclaim.count).saturating_add(1),
        }),
        Some(_) | None => previous.cloned(),
    };
    // The spec of an object that is being deleted is left as it is.
    let disabled = schedule == ScheduleRecord::Disabled && !input.requested.deleted;
    current.map(|reclaim| ReclaimStatus { schedule_disabled: reclaim.schedule_disabled || disabled, ..reclaim })
}

/// Steps after the removal. The schedule is disabled before the request is cleared: a crash between the two must not let
/// the machine rejoin at the next window.
pub(super) fn cleanup_steps(input: &DecisionInput<'_>) -> Vec<Step> {
    disable_schedule(input).into_iter().chain(agent_rollout::withdraw(input)).chain(clear_request(input)).collect()
}

fn disable_schedule(input: &DecisionInput<'_>) -> Option<Step> {
    let stored = &input.observed.stored;
    let done = stored.reclaim.as_ref().is_some_and(|reclaim| reclaim.schedule_disabled && reclaim.in_progress);
    (!done && !input.requested.deleted && input.requested.enabled).then_some(Step::DisableSchedule)
}

/// Nothing is left of the machine.
pub(super) fn finished(input: &DecisionInput<'_>) -> Plan {
    let reclaim =
        record(input, ScheduleRecord::Disabled).map(|reclaim| ReclaimStatus { in_progress: false, ..reclaim });
    let message = reclaim_message::disabled(reclaim.as_ref().and_then(|reclaim| reclaim.reason.as_deref()));
    // The user may have enabled the schedule or set the kill switch meanwhile: act on it immediately.
    let enabled = input.requested.enabled && disable_schedule(input).is_none();
    Plan {
        steps: cleanup_steps(input),
        status: DesiredStatus {
            reclaim,
            ..desired_status::empty(input, Phase::Disabled, Ready::ScheduleDisabled, message)
        },
        events: Vec::new(),
        wake_at: (enabled || input.requested.kill_switch).then_some(input.now),
    }
}
