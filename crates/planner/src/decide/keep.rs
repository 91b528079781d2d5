//! Leaving things as they are: the schedule is disabled, or the spec is invalid.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use fivespot_validation::validate::SpecErrors;

use super::goal::Cause;
use super::{desired_status, removal};
use crate::input::DecisionInput;
use crate::observed::{Exclusions, Observed};
use crate::plan::{Action, DesiredStatus, NeedsRead, Plan, Step};
use crate::reclaim_message;

/// The schedule is disabled. A shutdown whose Machine delete was issued is completed, any other is cancelled.
pub(super) fn plan(input: &DecisionInput<'_>) -> Result<Plan, NeedsRead> {
    if let Some(completion) = complete_issued_shutdown(input)? {
        return Ok(completion);
    }
    let message = match &input.observed.stored.reclaim {
        Some(reclaim) if reclaim.schedule_disabled => reclaim_message::disabled(reclaim.reason.as_deref()),
        Some(_) | None => {
            "Schedule is disabled; no machine is created or removed until spec.schedule.enabled is true".to_owned()
        }
    };
    let status = desired_status::keeping(input, Phase::Disabled, Ready::ScheduleDisabled, message);
    let finalizer = desired_status::finalizer_for_children(input);
    Ok(Plan {
        steps: finalizer.into_iter().chain(cancel_shutdown(input.observed)).collect(),
        status: DesiredStatus { shutdown_started_at: None, ..status },
        events: Vec::new(),
        wake_at: None,
    })
}

/// The spec is invalid: a running machine stays, and a deletion in progress is completed.
pub(super) fn leave_alone(input: &DecisionInput<'_>, errors: &SpecErrors) -> Result<Plan, NeedsRead> {
    if let Some(completion) = complete_issued_shutdown(input)? {
        return Ok(completion);
    }
    let status = desired_status::keeping(input, Phase::Error, Ready::InvalidSpec, errors.to_string());
    Ok(Plan {
        steps: desired_status::finalizer_for_children(input).into_iter().collect(),
        // Pods are not evicted meanwhile, so a later shutdown gives them all of their time.
        status: DesiredStatus { shutdown_started_at: None, ..status },
        events: Vec::new(),
        wake_at: None,
    })
}

/// A shutdown whose Machine delete was issued can no longer be cancelled.
fn complete_issued_shutdown(input: &DecisionInput<'_>) -> Result<Option<Plan>, NeedsRead> {
    let observed = input.observed;
    let issued = match observed.machine.managed() {
        Some(machine) => machine.deleting,
        None => observed.stored.shutdown_started_at.is_some(),
    };
    if !issued || removal::is_complete(observed)? {
        return Ok(None);
    }
    removal::graceful(input, Cause::WindowClosed).map(Some)
}

/// Undoes what a shutdown has changed on a machine that stays.
pub(super) fn cancel_shutdown(observed: &Observed) -> Vec<Step> {
    let cordoned = observed.node.managed().is_some_and(|node| node.cordon.is_annotated());
    let excluded = observed.machine.managed().is_some_and(|machine| machine.exclusions != Exclusions::default());
    let uncordon = cordoned.then_some(Step::Run(Action::Uncordon));
    let clear = excluded.then_some(Step::Run(Action::ClearExclusions));
    uncordon.into_iter().chain(clear).collect()
}
