//! Removing a machine, gracefully or by force.
//!
//! The Machine is deleted first: Cluster API then removes its infrastructure and bootstrap objects. What is left once the
//! Machine is gone, the controller deletes, by the kinds that were stored when it was created.

mod force;
mod graceful;

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::{SignedDuration, Timestamp};

use super::goal::{Cause, Removal, Speed};
use super::{desired_status, reclaim};
use crate::input::DecisionInput;
use crate::observed::{Child, Exclusions, Machine, Node, Observed, ProviderChild};
use crate::plan::{Action, NeedsRead, Plan, Role, Step};

pub(super) use graceful::plan as graceful;

/// Shortest interval for what is not watched: pods and provider objects.
const MIN_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(2);

/// Evictions or deletions of the pods of one Node, on average.
const MAX_POD_REQUESTS_PER_SECOND: usize = 50;

pub(super) fn plan(input: &DecisionInput<'_>, removal: Removal) -> Result<Plan, NeedsRead> {
    if is_complete(input.observed)? {
        return Ok(finished(input, removal.cause));
    }
    match removal.speed {
        Speed::Force => force::plan(input),
        Speed::Graceful => graceful(input, removal.cause),
    }
}

/// Whether no managed child is left.
pub(super) fn is_complete(observed: &Observed) -> Result<bool, NeedsRead> {
    let is_removed = |child: &Child<ProviderChild>| match child {
        Child::NotRead => Err(NeedsRead::Children),
        Child::Absent | Child::Unmanaged(_) | Child::Managed(_) => Ok(to_delete(observed, child).is_none()),
    };
    match &observed.machine {
        Child::Managed(_) => Ok(false),
        Child::NotRead => Err(NeedsRead::Children),
        Child::Absent | Child::Unmanaged(_) if observed.stored.refs.is_none() => Ok(true),
        Child::Absent | Child::Unmanaged(_) => {
            Ok(is_removed(&observed.bootstrap)? && is_removed(&observed.infrastructure)?)
        }
    }
}

fn finished(input: &DecisionInput<'_>, cause: Cause) -> Plan {
    let nothing_left = |phase, ready, message: &str| Plan {
        steps: Vec::new(),
        status: desired_status::empty(input, phase, ready, message),
        events: Vec::new(),
        wake_at: None,
    };
    match cause {
        Cause::Deleted => {
            let steps = if input.observed.has_finalizer { vec![Step::RemoveFinalizer] } else { Vec::new() };
            let message = if input.observed.has_finalizer {
                "Machine is removed; removing the finalizer"
            } else {
                "Machine is removed; waiting for finalizers of other controllers"
            };
            let mut plan = nothing_left(Phase::ShuttingDown, Ready::ShuttingDown, message);
            // The finalizer of another controller may keep the object.
            if let Some(reclaim) = &mut plan.status.reclaim {
                reclaim.in_progress = false;
            }
            Plan { steps, ..plan }
        }
        Cause::Reclaimed => reclaim::finished(input),
        Cause::KillSwitch => nothing_left(
            Phase::Terminated,
            Ready::KillSwitchActive,
            "Kill switch is on and no machine exists; set spec.killSwitch to false to return to the schedule",
        ),
        Cause::WindowClosed | Cause::MachineFailed => {
            nothing_left(Phase::Inactive, Ready::ScheduleInactive, "Outside the schedule")
        }
    }
}

/// A provider object that the controller has to delete. If the Machine has gained another owner, the objects that it has
/// adopted belong to that owner too.
fn to_delete<'a>(observed: &Observed, child: &'a Child<ProviderChild>) -> Option<&'a ProviderChild> {
    let is_adopted = |child: &ProviderChild| match &observed.machine {
        Child::Unmanaged(uid) => child.adopted_by.as_ref() == Some(uid),
        Child::NotRead | Child::Absent | Child::Managed(_) => false,
    };
    child.managed().filter(|child| !is_adopted(child))
}

fn exclude_and_delete(machine: &Machine, exclusions: Exclusions) -> Vec<Action> {
    let current = machine.exclusions;
    let missing =
        (exclusions.node_drain && !current.node_drain) || (exclusions.volume_detach && !current.volume_detach);
    let exclude = missing.then_some(Action::SetExclusions(exclusions));
    let delete = (!machine.deleting).then(|| Action::DeleteMachine { uid: machine.uid.clone() });
    exclude.into_iter().chain(delete).collect()
}

fn cordon(node: &Node) -> Vec<Action> {
    let schedulable = node.managed().is_some_and(|node| node.cordon.accepts_pods());
    if schedulable { vec![Action::Cordon] } else { Vec::new() }
}

/// Deletes what the Machine left behind, infrastructure first: the order of Cluster API.
fn delete_leftovers(observed: &Observed) -> Vec<Step> {
    [(Role::Infrastructure, &observed.infrastructure), (Role::Bootstrap, &observed.bootstrap)]
        .into_iter()
        .filter_map(|(role, child)| to_delete(observed, child).map(|child| (role, child)))
        .filter(|(_, child)| !child.deleting)
        .map(|(role, child)| Step::Run(Action::DeleteProviderObject { role, uid: child.uid.clone() }))
        .collect()
}

/// When to read again what is not watched: soon at first, then less and less often, at least every `max`.
fn poll_at(started: Timestamp, now: Timestamp, max: SignedDuration) -> Timestamp {
    after(now, (now.duration_since(started) / 8).clamp(MIN_POLL_INTERVAL, max))
}

/// When to send requests about this many pods again, at the earliest: hundreds of pods that are rejected must not become
/// hundreds of requests per second.
fn after_pods(now: Timestamp, pods: usize) -> Timestamp {
    after(now, SignedDuration::from_secs((pods / MAX_POD_REQUESTS_PER_SECOND).try_into().unwrap_or(i64::MAX)))
}

fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
