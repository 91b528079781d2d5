//! The record of a Machine that failed: when the next one may be created. It is stored, so that neither a restart nor a
//! second process recreates a Machine earlier or reports something else.

use fivespot_api::MachineFailure;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::input::DecisionInput;
use crate::observed::{Machine, MachineHealth};
use crate::retry::backoff;

const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// The reason ends up in a condition, whose message has a limit.
const MAX_REASON_CHARS: usize = 400;

/// The stored record.
pub(crate) fn stored(input: &DecisionInput<'_>) -> Option<MachineFailure> {
    input.observed.stored.machine_failure.as_ref().map(|it| bounded(it, input.now))
}

/// The record while a Machine exists that has not failed. It ends when the Machine has become a Ready Node.
pub(crate) fn unless_ready(input: &DecisionInput<'_>, machine: &Machine) -> Option<MachineFailure> {
    let has_ready_node = input.observed.node.managed().is_some_and(|node| node.ready);
    stored(input).filter(|_| machine.health != MachineHealth::Running || !has_ready_node)
}

/// The record of a Machine that is replaced because it failed.
pub(crate) fn record(input: &DecisionInput<'_>, machine: &Machine, reason: &str) -> MachineFailure {
    let stored = stored(input);
    if let Some(known) = stored.as_ref().filter(|it| it.machine_uid == machine.uid) {
        return known.clone();
    }
    let before = stored.map_or(0, |it| it.count);
    let attempts = before.try_into().unwrap_or(u32::MAX);
    MachineFailure {
        machine_uid: machine.uid.clone(),
        reason: truncate(reason),
        count: before.saturating_add(1),
        retry_at: Time(after(input.now, backoff(FIRST_BACKOFF, MAX_BACKOFF, attempts))),
    }
}

/// The record while it postpones the next Machine.
pub(crate) fn waiting(input: &DecisionInput<'_>) -> Option<MachineFailure> {
    stored(input).filter(|failure| input.now < failure.retry_at.0)
}

/// Users may be able to write the status, and the clock may have been stepped back: no time is further away than the
/// longest backoff, and no text is longer than the controller's own.
fn bounded(stored: &MachineFailure, now: Timestamp) -> MachineFailure {
    let is_too_late = stored.retry_at.0.duration_since(now) > MAX_BACKOFF;
    MachineFailure {
        machine_uid: stored.machine_uid.clone(),
        reason: truncate(&stored.reason),
        count: stored.count.max(0),
        retry_at: if is_too_late { Time(now) } else { stored.retry_at.clone() },
    }
}

fn truncate(reason: &str) -> String {
    match reason.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

/// In whole seconds, as the status stores it, so that the first message about it is also the last.
fn after(now: Timestamp, delay: SignedDuration) -> Timestamp {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    now.saturating_add(delay).unwrap_or(Timestamp::MAX)
}
