//! Which reclaim request counts.
//!
//! Each Machine is reclaimed at most once: a later request for it is only cleared. So is a request that was on the Node
//! before the agent was rolled out for this Machine: it is left over from an earlier Machine. Times are not compared, because
//! the clock of a workstation may be hours off.

use crate::input::DecisionInput;
use crate::observed::{Machine, ReclaimRequest};

/// Whether a reclaim is in progress or starts now.
pub(super) fn in_progress(input: &DecisionInput<'_>) -> bool {
    input.observed.stored.reclaim_in_progress() || new_request(input).is_some()
}

/// Whether a reclaim starts now: it is stored before anything else happens.
pub(super) fn starts(input: &DecisionInput<'_>) -> bool {
    !input.observed.stored.reclaim_in_progress() && new_request(input).is_some()
}

/// A request for a Machine that has not been reclaimed yet.
pub(super) fn new_request<'a>(input: &DecisionInput<'a>) -> Option<(&'a Machine, &'a ReclaimRequest)> {
    let machine = input.observed.machine.managed()?;
    let request = on_node(input)?;
    let counts = input.requested.agent_config.is_some() && is_rolled_out(input) && !was_reclaimed(input);
    counts.then_some((machine, request))
}

/// Whether the agent was rolled out for the existing Machine.
pub(super) fn is_rolled_out(input: &DecisionInput<'_>) -> bool {
    let uid = input.observed.machine.managed().map(|machine| &machine.uid);
    input.observed.node.managed().is_some_and(|node| node.agent.machine_uid.as_ref() == uid)
}

pub(super) fn on_node<'a>(input: &DecisionInput<'a>) -> Option<&'a ReclaimRequest> {
    input.observed.node.managed().and_then(|node| node.reclaim_request.as_ref())
}

/// Whether the existing Machine has been reclaimed before.
pub(super) fn was_reclaimed(input: &DecisionInput<'_>) -> bool {
    let uid = input.observed.machine.managed().map(|machine| &machine.uid);
    input.observed.stored.reclaim.as_ref().is_some_and(|reclaim| Some(&reclaim.machine_uid) == uid)
}
