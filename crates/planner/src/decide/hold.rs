//! Leaving things as they are.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;

use super::aim::Because;
use super::{Sight, Situation, reclaim, removal, standing};
use crate::observed::{Cordon, Marks, Node, Observed};
use crate::plan::{Action, Plan, Standing};
use fivespot_validation::validate::SpecErrors;

/// The schedule is disabled: a shutdown whose delete was issued is finished, any other is abandoned, and all else stays.
pub(super) fn plan(situation: &Situation<'_>) -> Sight<Plan> {
    if let Some(finishing) = finish_issued(situation)? {
        return Ok(finishing);
    }
    let reclaimed = situation.seen.stored.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
    let message =
        if reclaimed { reclaim::GIVEN_BACK } else { "the schedule is disabled: nothing is created or removed" };
    let standing = standing::keeping(situation, Phase::Disabled, Ready::ScheduleDisabled, message);
    let finalizer = standing::finalizer_of_a_machine(situation);
    Ok(Plan {
        actions: finalizer.into_iter().chain(undo_shutdown(situation.seen)).collect(),
        standing: Standing { shutdown_started_at: None, ..standing },
        events: Vec::new(),
        wake_at: None,
    })
}

/// Nobody can tell what the spec asks for: a machine that lives stays, one that is leaving leaves.
pub(super) fn leave_alone(situation: &Situation<'_>, errors: &SpecErrors) -> Sight<Plan> {
    if let Some(finishing) = finish_issued(situation)? {
        return Ok(finishing);
    }
    let standing = standing::keeping(situation, Phase::Error, Ready::InvalidSpec, errors.to_string());
    Ok(Plan {
        actions: standing::finalizer_of_a_machine(situation).into_iter().collect(),
        // Nobody asks pods to leave meanwhile: if they have to once the spec is mended, they have all their time.
        standing: Standing { shutdown_started_at: None, ..standing },
        events: Vec::new(),
        wake_at: None,
    })
}

/// A shutdown past the point of no return: the Machine's delete was issued, so it is seen to its end.
fn finish_issued(situation: &Situation<'_>) -> Sight<Option<Plan>> {
    let seen = situation.seen;
    let issued = match seen.machine.ours() {
        Some(machine) => machine.deleting,
        None => seen.stored.shutdown_started_at.is_some(),
    };
    if !issued || removal::is_gone(seen)? {
        return Ok(None);
    }
    removal::graceful(situation, Because::Closed).map(Some)
}

/// What takes a machine back that was on its way out.
pub(super) fn undo_shutdown(seen: &Observed) -> Vec<Action> {
    let cordoned = matches!(&seen.node, Node::Ours(node) if matches!(node.cordon, Cordon::Ours | Cordon::Reopened));
    let marked = seen.machine.ours().is_some_and(|it| it.marks != Marks::default());
    let uncordon = cordoned.then_some(Action::Uncordon);
    let unmark = marked.then_some(Action::Unmark);
    uncordon.into_iter().chain(unmark).collect()
}
