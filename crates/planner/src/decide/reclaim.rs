//! The owner wants the machine back.
//!
//! A request counts once for each Machine: it is stored before anything is done about it, finished whatever happens to the
//! Node meanwhile, and a later request for the same Machine is only cleared.

use fivespot_api::conditions::Ready;
use fivespot_api::{Phase, ReclaimStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Situation, projection, standing};
use crate::observed::{Machine, Node, ReclaimRequest};
use crate::plan::{Action, Plan, Standing};

/// How it ends.
pub(super) const GIVEN_BACK: &str = "given back to its owner; set schedule.enabled to true to return to the schedule";

/// Whether a reclaim is under way, or begins now.
pub(super) fn is_under_way(situation: &Situation<'_>) -> bool {
    situation.seen.stored.reclaiming || new_request(situation).is_some()
}

/// Whether one begins now: it is stored before anything is done.
pub(super) fn begins(situation: &Situation<'_>) -> bool {
    !situation.seen.stored.reclaiming && new_request(situation).is_some()
}

/// The Machine that is asked for, if it has not been reclaimed yet.
fn new_request<'a>(situation: &Situation<'a>) -> Option<(&'a Machine, &'a ReclaimRequest)> {
    let seen = situation.seen;
    let machine = seen.machine.ours()?;
    let request = request(situation)?;
    let done_before = was_given_back(situation);
    (situation.intent.orders.is_some() && !done_before).then_some((machine, request))
}

fn request<'a>(situation: &Situation<'a>) -> Option<&'a ReclaimRequest> {
    match &situation.seen.node {
        Node::Ours(node) => node.reclaim.as_ref(),
        Node::None | Node::Sought | Node::NotSeen | Node::Unreachable(_) => None,
    }
}

/// Takes a request off the Node. It is the last act about it; one that does not count is only cleared: nobody may ask any
/// more, or this Machine was given back before.
pub(super) fn clear(situation: &Situation<'_>) -> Option<Action> {
    request(situation).map(|_| Action::ClearRequest)
}

/// Whether the Machine that is there was given back before.
pub(super) fn was_given_back(situation: &Situation<'_>) -> bool {
    let uid = situation.seen.machine.ours().map(|it| &it.uid);
    situation.seen.stored.reclaim.as_ref().is_some_and(|it| Some(&it.machine_uid) == uid)
}

/// Whether the schedule has been disabled for the reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// What is stored first, before anything is done.
    NotYetDisabled,
    /// What is told when everything has been done. It is done once: a later edit by a person wins.
    Disabled,
}

/// The standing while the machine is on its way out.
pub(super) fn standing(situation: &Situation<'_>, schedule: Schedule) -> Standing {
    let reclaim = record(situation, schedule);
    let why = reclaim.as_ref().and_then(|it| it.reason.clone()).unwrap_or_else(|| "no reason given".to_owned());
    Standing {
        reclaim,
        ..standing::keeping(
            situation,
            Phase::EmergencyRemove,
            Ready::EmergencyReclaim,
            format!("given back to its owner ({why})"),
        )
    }
}

fn record(situation: &Situation<'_>, schedule: Schedule) -> Option<ReclaimStatus> {
    let stored = &situation.seen.stored;
    let before = stored.reclaim.as_ref();
    let begun = match new_request(situation) {
        Some((machine, request)) if !stored.reclaiming => Some(ReclaimStatus {
            machine_uid: machine.uid.clone(),
            reason: request.reason.clone(),
            requested_at: request.at.map(Time),
            schedule_disabled: false,
            in_progress: false,
            count: before.map_or(0, |it| it.count).saturating_add(1),
        }),
        Some(_) | None => before.cloned(),
    };
    // An object that goes does not come back at the next window, and its spec is left as it is.
    let disabled = schedule == Schedule::Disabled && !situation.intent.deleted;
    begun.map(|it| ReclaimStatus { schedule_disabled: it.schedule_disabled || disabled, ..it })
}

/// What follows the eject: the schedule is disabled before the request is cleared, or a crash between the two would let
/// the machine come back at the next window.
pub(super) fn aftermath(situation: &Situation<'_>) -> Vec<Action> {
    let disable = disable_schedule(situation);
    disable.into_iter().chain(projection::withdraw(situation)).chain(clear(situation)).collect()
}

fn disable_schedule(situation: &Situation<'_>) -> Option<Action> {
    let done = situation.seen.stored.reclaim.as_ref().is_some_and(|it| it.schedule_disabled)
        && situation.seen.stored.reclaiming;
    (!done && !situation.intent.deleted && situation.intent.enabled).then_some(Action::DisableSchedule)
}

/// Nothing is left of the machine, and the schedule is disabled.
pub(super) fn finished(situation: &Situation<'_>) -> Plan {
    Plan {
        actions: aftermath(situation),
        standing: Standing {
            reclaim: record(situation, Schedule::Disabled),
            ..standing::empty(situation, Phase::Disabled, Ready::ScheduleDisabled, GIVEN_BACK)
        },
        events: Vec::new(),
        // A person who enabled it meanwhile, or turned the kill switch on, is not kept waiting.
        wake_at: {
            let enabled = situation.intent.enabled && disable_schedule(situation).is_none();
            (enabled || situation.intent.killed).then_some(situation.now)
        },
    }
}
