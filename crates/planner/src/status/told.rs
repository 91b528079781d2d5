//! The sentences of a status.

use std::collections::BTreeMap;

use fivespot_api::conditions::{MachineReady, NodeTainted, ReferencesValid, Scheduled};

use super::{Blocked, Done};
use crate::decide::Situation;
use crate::observed::{Health, Node, Observed};
use crate::plan::{Standing, Tainted};
use crate::taints;
use fivespot_validation::validate::SpecErrors;

/// The same sentence for a Machine that was just created and for one that is seen on its way: it is one write less.
const NOT_YET: &str = "the machine has not become a Node yet";

pub(super) fn message(standing: &Standing, done: &Done) -> String {
    let message = match blocked(&done.blocked) {
        Some(blocked) => format!("{}, {blocked}", standing.message),
        None => standing.message.clone(),
    };
    match no_agent(done) {
        Some(no_agent) if no_agent != message => format!("{message}; {no_agent}"),
        Some(_) | None => message,
    }
}

/// What it means that the reclaim agent could not be had on the Node, if that is so.
pub(super) fn no_agent(done: &Done) -> Option<String> {
    done.unprojected.as_ref().map(|why| format!("its owner cannot take the machine back: {why}"))
}

/// "2 blocked by PDB team-a/web, 1 blocked by more than one PDB in team-b".
fn blocked(pods: &[Blocked]) -> Option<String> {
    let mut by_holder: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods {
        let holder = match &pod.budget {
            Some(budget) => format!("PDB {}/{budget}", pod.namespace),
            None => format!("PDBs of namespace {}", pod.namespace),
        };
        *by_holder.entry(holder).or_default() += 1;
    }
    let parts: Vec<String> = by_holder.iter().map(|(holder, count)| format!("{count} blocked by {holder}")).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(super) fn scheduled(situation: &Situation<'_>, standing: &Standing) -> (Scheduled, String) {
    if let Some(errors) = situation.spec.err().and_then(SpecErrors::of_schedule) {
        return (Scheduled::InvalidSchedule, errors.to_string());
    }
    let reclaimed = standing.reclaim.as_ref().filter(|it| it.schedule_disabled);
    match (reclaimed, situation.intent.enabled, situation.spec) {
        (Some(reclaim), _, _) => {
            let why = reclaim.reason.as_deref().unwrap_or("no reason given");
            let message = format!("given back to its owner ({why}); set schedule.enabled to true to return");
            (Scheduled::EmergencyReclaimDisabledSchedule, message)
        }
        (None, false, _) => (Scheduled::ScheduleDisabled, "schedule.enabled is false".to_owned()),
        (None, true, Ok(spec)) if spec.schedule.is_open(situation.now) => {
            let message = match spec.schedule.current_close(situation.now) {
                Some(close) => format!("open until {close}"),
                None => "always open".to_owned(),
            };
            (Scheduled::ScheduleActive, message)
        }
        (None, true, Ok(spec)) => {
            let message = match spec.schedule.next_opening(situation.now) {
                Some(opening) => format!("closed until {opening}"),
                None => "the schedule never opens again".to_owned(),
            };
            (Scheduled::ScheduleInactive, message)
        }
        (None, true, Err(_)) => (Scheduled::ScheduleInactive, "the spec has to be mended first".to_owned()),
    }
}

pub(super) fn machine_ready(seen: &Observed, done: &Done) -> (MachineReady, String) {
    let Some(machine) = seen.machine.ours() else {
        return match &done.machine {
            Some(_) => (MachineReady::MachineNotReady, NOT_YET.to_owned()),
            None => (MachineReady::NoMachine, "there is no Machine".to_owned()),
        };
    };
    match (&machine.health, &seen.node) {
        (Health::Failed(why), _) => (MachineReady::MachineFailed, why.clone()),
        (Health::Running | Health::Provisioning, Node::Unreachable(why)) => {
            (MachineReady::WorkloadClusterUnreachable, why.clone())
        }
        (Health::Running, Node::Ours(node)) if node.ready => {
            (MachineReady::MachineReady, format!("Node {} is Ready", node.name))
        }
        (Health::Running | Health::Provisioning, Node::Ours(node)) if !node.ready => {
            (MachineReady::MachineNotReady, format!("Node {} is not Ready", node.name))
        }
        (Health::Running, Node::None | Node::NotSeen) => (MachineReady::MachineNotReady, machine.no_node()),
        (Health::Running, Node::Sought | Node::Ours(_)) | (Health::Provisioning, _) => {
            (MachineReady::MachineNotReady, NOT_YET.to_owned())
        }
    }
}

/// How it stands with taints where there is no Node to have them.
pub(super) fn no_node_to_taint(situation: &Situation<'_>) -> Tainted {
    let wanted = situation.spec.is_ok_and(|it| !it.node_taints.is_empty());
    let told = wanted.then(|| (NodeTainted::NoNodeYet, taints::NO_NODE.to_owned()));
    Tainted { applied: Vec::new(), told }
}

pub(super) fn references(standing: &Standing, situation: &Situation<'_>, done: &Done) -> String {
    if let Some(failure) = done.failure.as_ref().filter(|it| it.references.is_some()) {
        return failure.why.clone();
    }
    let cluster = situation.spec.map_or_else(|_| String::new(), |it| format!("Cluster {} ", it.cluster_name));
    match standing.references {
        ReferencesValid::Valid => "everything that the spec names can be used".to_owned(),
        ReferencesValid::ValidNextWindow => {
            "the machine was made from an earlier spec; what was edited applies to the next one".to_owned()
        }
        ReferencesValid::ClusterNotFound => format!("{cluster}does not exist"),
        ReferencesValid::ClusterDeleting => format!("{cluster}is being deleted"),
        ReferencesValid::ClusterPaused => format!("{cluster}is paused"),
        ReferencesValid::InvalidSpec | ReferencesValid::GroupNotAllowed | ReferencesValid::NamespaceNotAllowed => {
            situation.spec.map_or_else(ToString::to_string, |_| String::new())
        }
        ReferencesValid::KindNotFound | ReferencesValid::NameConflict => standing.message.clone(),
    }
}
