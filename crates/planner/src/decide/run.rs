//! Seeing to it that there is a machine.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::Unit;

use super::aim::Because;
use super::{Sight, Situation, hold, removal, standing, tainting};
use crate::event::{Event, Reason};
use crate::observed::{Cluster, Health, Machine, Node, Observed, ProviderChild, Slot, Wanted};
use crate::plan::{Action, Look, Plan, Standing};

pub(super) fn plan(situation: &Situation<'_>) -> Sight<Plan> {
    match &situation.seen.machine {
        Slot::Foreign(_) => {
            let name = situation.seen.wanted.as_ref().map_or("", |it| it.machine.as_str());
            Ok(wrong(situation, &taken("Machine", name)))
        }
        Slot::Ours(machine) if machine.deleting => removal::graceful(situation, Because::Closed),
        Slot::Ours(machine) => keep(situation, machine),
        Slot::NotRead => Err(Look::Children),
        Slot::Absent => make(situation),
    }
}

/// The machine is there: it is taken back if it was on its way out, and made anew if it failed.
fn keep(situation: &Situation<'_>, machine: &Machine) -> Sight<Plan> {
    if matches!(machine.health, Health::Failed(_)) {
        return removal::graceful(situation, Because::Failed);
    }
    let stored = &situation.seen.stored;
    if stored.refs.is_some() && !stored.uids_known && matches!(situation.seen.bootstrap, Slot::NotRead) {
        return Err(Look::Children);
    }
    let (ready, message) = health(machine, &situation.seen.node);
    let finalizer = standing::missing_finalizer(situation);
    let (taint, taints) = tainting::plan(situation);
    let actions = finalizer.into_iter().chain(hold::undo_shutdown(situation.seen)).chain(taint).collect();
    let taken_back = situation.seen.stored.shutdown_started_at.is_some();
    Ok(Plan {
        actions,
        standing: Standing {
            shutdown_started_at: None,
            taints,
            ..standing::keeping(situation, Phase::Active, ready, message)
        },
        events: taken_back
            .then(|| Event::new(Reason::TakenBack, "the window is open again, and the machine stays"))
            .into_iter()
            .collect(),
        // Once it is known again what its parts are called, they can be looked at.
        wake_at: stored.refs.is_none().then_some(situation.now),
    })
}

fn health(machine: &Machine, node: &Node) -> (Ready, String) {
    match (&machine.health, node) {
        (Health::Running, Node::Ours(node)) if node.ready => {
            (Ready::MachineRunning, format!("the machine runs as Node {}", node.name))
        }
        (Health::Running, Node::Ours(node)) => (Ready::Provisioning, format!("Node {} is not Ready", node.name)),
        (Health::Running, Node::Unreachable(why)) => {
            (Ready::Error, format!("the workload cluster does not answer: {why}"))
        }
        (Health::Running, Node::None | Node::NotSeen) => (Ready::Provisioning, machine.no_node()),
        (Health::Running, Node::Sought) | (Health::Provisioning | Health::Failed(_), _) => {
            (Ready::Provisioning, "the machine is on its way".to_owned())
        }
    }
}

/// The machine is not there: what an earlier one left is removed first, then it is made.
fn make(situation: &Situation<'_>) -> Sight<Plan> {
    let seen = situation.seen;
    let Some(wanted) = &seen.wanted else {
        return Ok(wrong(situation, "the spec does not say which objects to create"));
    };
    if has_leftovers(seen, wanted)? {
        return removal::graceful(situation, Because::Closed);
    }
    let children = [(&seen.bootstrap, &wanted.refs.bootstrap), (&seen.infrastructure, &wanted.refs.infrastructure)];
    if let Some((_, child)) = children.into_iter().find(|(slot, _)| matches!(slot, Slot::Foreign(_))) {
        return Ok(wrong(situation, &taken(&child.kind, &child.name)));
    }
    if let Some(waiting) = wait(situation) {
        return Ok(waiting);
    }
    let standing = |phase, message: &str| Standing {
        refs: Some(wanted.refs.clone()),
        ..standing::empty(situation, phase, Ready::Provisioning, message)
    };
    let finalizer = standing::missing_finalizer(situation);
    let store = (seen.stored.refs.as_ref() != Some(&wanted.refs) || seen.stored.shutdown_started_at.is_some())
        .then(|| Action::Store(Box::new(standing(Phase::Pending, "the machine is being made"))));
    Ok(Plan {
        actions: finalizer.into_iter().chain(store).chain([Action::CreateChildren]).collect(),
        standing: standing(Phase::Active, "the machine is on its way"),
        events: Vec::new(),
        wake_at: None,
    })
}

/// What a new machine has to wait for.
fn wait(situation: &Situation<'_>) -> Option<Plan> {
    let waiting = |phase, ready, message: &str| Plan {
        actions: Vec::new(),
        standing: unmade(situation, phase, ready, message),
        events: Vec::new(),
        wake_at: None,
    };
    match situation.seen.cluster {
        Cluster::Missing => return Some(waiting(Phase::Error, Ready::Error, "the Cluster does not exist")),
        Cluster::Deleting => return Some(waiting(Phase::Error, Ready::Error, "the Cluster is being deleted")),
        Cluster::Paused => {
            let message = "the Cluster is paused: the machine is made when it is resumed";
            return Some(waiting(Phase::Pending, Ready::Provisioning, message));
        }
        Cluster::Present => {}
    }
    let held_off = situation.seen.held_off.as_ref().filter(|it| situation.now < it.until)?;
    let at = held_off.until.round(Unit::Second).unwrap_or(held_off.until);
    let message = format!("the last machine failed ({}): the next is made at {at}", held_off.why);
    Some(Plan { wake_at: Some(held_off.until), ..waiting(Phase::Error, Ready::Error, &message) })
}

/// Nothing of a machine is there, or the first parts of one that stay until it can be made.
fn unmade(situation: &Situation<'_>, phase: Phase, ready: Ready, message: &str) -> Standing {
    let seen = situation.seen;
    if seen.bootstrap.ours().is_some() || seen.infrastructure.ours().is_some() {
        standing::keeping(situation, phase, ready, message)
    } else {
        standing::empty(situation, phase, ready, message)
    }
}

/// Whether there are objects of an earlier machine: of a shutdown that is not finished, of other kinds or another spec
/// than are wanted now, or adopted by a Machine that is gone.
fn has_leftovers(seen: &Observed, wanted: &Wanted) -> Sight<bool> {
    if seen.stored.refs.is_none() {
        return Ok(false);
    }
    if [&seen.bootstrap, &seen.infrastructure].iter().any(|it| matches!(it, Slot::NotRead)) {
        return Err(Look::Children);
    }
    let children: Vec<&ProviderChild> =
        [&seen.bootstrap, &seen.infrastructure].into_iter().filter_map(Slot::ours).collect();
    let of_another = |child: &&ProviderChild| {
        child.deleting || child.adopted_by.is_some() || child.fingerprint.as_ref() != Some(&wanted.fingerprint)
    };
    Ok(!children.is_empty()
        && (seen.stored.shutdown_started_at.is_some()
            || seen.stored.refs.as_ref() != Some(&wanted.refs)
            || children.iter().any(of_another)))
}

fn taken(kind: &str, name: &str) -> String {
    format!("{kind} {name} is there already, and it is not ours; remove it, or rename this object")
}

/// Something that a person, or time, has to put right; a watch tells when it has.
fn wrong(situation: &Situation<'_>, message: &str) -> Plan {
    Plan {
        actions: Vec::new(),
        standing: standing::keeping(situation, Phase::Error, Ready::Error, message),
        events: Vec::new(),
        wake_at: None,
    }
}
