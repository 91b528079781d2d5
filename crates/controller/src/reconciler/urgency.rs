//! Which objects are reconciled first: an owner or an administrator waits for the machine to be removed.
//!
//! Urgency decides the order of reconciles and how soon one is retried, never what it does.

use fivespot_api::{Phase, ScheduledMachine};

use super::context::Context;
use super::observe::{has_reclaim_request, node_name};
use crate::runtime::workqueue::Key;

pub(crate) fn is_urgent(context: &Context, key: &Key, object: &ScheduledMachine) -> bool {
    let status = object.status.as_ref();
    let killed = object.spec.kill_switch && status.and_then(|status| status.phase) != Some(Phase::Terminated);
    let reclaiming = status.and_then(|status| status.reclaim.as_ref()).is_some_and(|reclaim| reclaim.in_progress);
    killed || reclaiming || is_reclaim_requested(context, key, object).unwrap_or_default()
}

fn is_reclaim_requested(context: &Context, key: &Key, object: &ScheduledMachine) -> Option<bool> {
    object.spec.kill_if_commands.as_ref().filter(|commands| !commands.is_empty())?;
    let machine = context.machines.get(key)?;
    let node = context.workload_clusters.client_for(key)?.cached_node(&node_name(&machine)?)?;
    Some(has_reclaim_request(&node))
}
