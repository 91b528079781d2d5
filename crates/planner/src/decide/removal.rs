//! Taking a machine out, gracefully or at once.
//!
//! The Machine goes first: Cluster API removes its infrastructure and bootstrap objects itself. What is still there when
//! the Machine is gone, we delete, by the kinds that were stored when it was made.

mod eject;
mod graceful;

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::{SignedDuration, Timestamp};

use super::aim::{Because, Removal, Speed};
use super::{Sight, Situation, reclaim, standing};
use crate::observed::{Cordon, Machine, Marks, Node, Observed, ProviderChild, Slot};
use crate::plan::{Action, Look, Plan, Role};

pub(super) use graceful::plan as graceful;

/// How soon to look again at what nothing tells us about: pods that leave, provider objects that go.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn plan(situation: &Situation<'_>, removal: Removal) -> Sight<Plan> {
    if is_gone(situation.seen)? {
        return Ok(finished(situation, removal.because));
    }
    match removal.speed {
        Speed::Eject => eject::plan(situation),
        Speed::Graceful => graceful(situation, removal.because),
    }
}

/// Whether nothing of ours is left. What is not ours is none of our business.
pub(super) fn is_gone(seen: &Observed) -> Sight<bool> {
    let no_provider = |slot: &Slot<ProviderChild>| match slot {
        Slot::NotRead => Err(Look::Children),
        Slot::Absent | Slot::Foreign(_) | Slot::Ours(_) => Ok(to_remove(seen, slot).is_none()),
    };
    match &seen.machine {
        Slot::Ours(_) => Ok(false),
        Slot::NotRead => Err(Look::Children),
        Slot::Absent | Slot::Foreign(_) if seen.stored.refs.is_none() => Ok(true),
        Slot::Absent | Slot::Foreign(_) => Ok(no_provider(&seen.bootstrap)? && no_provider(&seen.infrastructure)?),
    }
}

fn finished(situation: &Situation<'_>, because: Because) -> Plan {
    let nothing_to_do = |phase, ready, message: &str| Plan {
        actions: Vec::new(),
        standing: standing::empty(situation, phase, ready, message),
        events: Vec::new(),
        wake_at: None,
    };
    match because {
        Because::Deleted => Plan {
            actions: if situation.seen.finalizer { vec![Action::RemoveFinalizer] } else { Vec::new() },
            ..nothing_to_do(Phase::ShuttingDown, Ready::ShuttingDown, "nothing is left of the machine")
        },
        Because::Reclaimed => reclaim::finished(situation),
        Because::Killed => nothing_to_do(
            Phase::Terminated,
            Ready::KillSwitchActive,
            "removed by the kill switch; set killSwitch to false to return to the schedule",
        ),
        Because::Closed | Because::Failed => {
            nothing_to_do(Phase::Inactive, Ready::ScheduleInactive, "outside the schedule")
        }
    }
}

/// A provider object that is ours to remove. Where somebody else has taken over the Machine, what it has adopted went with
/// it.
fn to_remove<'a>(seen: &Observed, slot: &'a Slot<ProviderChild>) -> Option<&'a ProviderChild> {
    let theirs = |child: &ProviderChild| match &seen.machine {
        Slot::Foreign(uid) => child.adopted_by.as_ref() == Some(uid),
        Slot::NotRead | Slot::Absent | Slot::Ours(_) => false,
    };
    slot.ours().filter(|child| !theirs(child))
}

fn mark_and_delete(machine: &Machine, marks: Marks) -> Vec<Action> {
    let missing = (marks.no_drain && !machine.marks.no_drain) || (marks.no_volumes && !machine.marks.no_volumes);
    let mark = missing.then_some(Action::Mark(marks));
    let delete = (!machine.deleting).then(|| Action::DeleteMachine { uid: machine.uid.clone() });
    mark.into_iter().chain(delete).collect()
}

fn cordon(node: &Node) -> Vec<Action> {
    match node {
        Node::Ours(node) if is_open(node.cordon) => vec![Action::Cordon],
        Node::Ours(_) | Node::None | Node::Sought | Node::NotSeen | Node::Unreachable(_) => Vec::new(),
    }
}

/// Whether a Node takes new pods.
fn is_open(cordon: Cordon) -> bool {
    match cordon {
        Cordon::Open | Cordon::Reopened => true,
        Cordon::Ours | Cordon::Others => false,
    }
}

/// What the Machine left behind, the infrastructure first: that is the order in which Cluster API takes them.
fn delete_leftovers(seen: &Observed) -> Vec<Action> {
    [(Role::Infrastructure, &seen.infrastructure), (Role::Bootstrap, &seen.bootstrap)]
        .into_iter()
        .filter_map(|(role, slot)| to_remove(seen, slot).map(|child| (role, child)))
        .filter(|(_, child)| !child.deleting)
        .map(|(role, child)| Action::DeleteProvider { role, uid: child.uid.clone() })
        .collect()
}

/// When to look again at what has been going on since `started`: soon at first, and ever less often.
fn look_again(started: Timestamp, now: Timestamp, at_most: SignedDuration) -> Timestamp {
    later(now, (now.duration_since(started) / 8).clamp(LOOK_AGAIN, at_most))
}

/// An instant later than another, or the last there is.
fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
