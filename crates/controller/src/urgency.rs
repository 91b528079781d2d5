//! Whom somebody waits for: an owner who wants the machine back, or a person who turned the kill switch on.
//!
//! This decides who is looked at first and how soon again, never what is done.

use fivespot_api::{Phase, ScheduledMachine};

use crate::context::Context;
use crate::observe::{is_requested, node_name};
use crate::queue::Key;

/// Whether somebody waits for the machine of an object to be out.
pub(crate) fn is_urgent(context: &Context, key: &Key, object: &ScheduledMachine) -> bool {
    let phase = object.status.as_ref().and_then(|it| it.phase);
    let killed = object.spec.kill_switch && phase != Some(Phase::Terminated);
    killed || phase == Some(Phase::EmergencyRemove) || is_asked_for(context, key, object).unwrap_or_default()
}

/// Whether there is a request on the Node.
fn is_asked_for(context: &Context, key: &Key, object: &ScheduledMachine) -> Option<bool> {
    object.spec.kill_if_commands.as_ref().filter(|it| !it.is_empty())?;
    let machine = context.machines.of(key)?;
    let node = context.workloads.reach(key)?.known(&node_name(&machine)?)?;
    Some(is_requested(&node))
}
