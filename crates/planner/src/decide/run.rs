//! The window is open: a machine exists, or is created.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;

use super::goal::Cause;
use super::{desired_status, keep, node_taints, removal};
use crate::events::{Event, Reason};
use crate::input::DecisionInput;
use crate::machine_failure;
use crate::observed::{
    Absence, Child, Cluster, DesiredChildren, Machine, MachineHealth, Node, Observed, ProviderChild,
};
use crate::plan::{DesiredStatus, NeedsRead, Plan, Step};

pub(super) fn plan(input: &DecisionInput<'_>) -> Result<Plan, NeedsRead> {
    match &input.observed.machine {
        Child::Unmanaged(_) => Ok(name_conflict(input)),
        Child::Managed(machine) if machine.deleting => removal::graceful(input, Cause::WindowClosed),
        Child::Managed(machine) => keep_running(input, machine),
        Child::NotRead => Err(NeedsRead::Children),
        Child::Absent => create(input),
    }
}

/// The machine exists: a shutdown is cancelled, a failed Machine is replaced.
fn keep_running(input: &DecisionInput<'_>, machine: &Machine) -> Result<Plan, NeedsRead> {
    if matches!(machine.health, MachineHealth::Failed(_)) {
        return removal::graceful(input, Cause::MachineFailed);
    }
    let stored = &input.observed.stored;
    if stored.refs.is_some() && !stored.has_child_uids && matches!(input.observed.bootstrap, Child::NotRead) {
        return Err(NeedsRead::Children);
    }
    let (ready, message) = readiness(machine, &input.observed.node);
    let finalizer = desired_status::missing_finalizer(input);
    let (taint, taints) = node_taints::plan(input);
    let cancelled = stored.shutdown_started_at.is_some().then(|| {
        let note = format!("Window reopened before Machine {} was deleted; the machine stays", machine.name);
        Event::new(Reason::ShutdownCancelled, note)
    });
    Ok(Plan {
        steps: finalizer.into_iter().chain(keep::cancel_shutdown(input.observed)).chain(taint).collect(),
        status: DesiredStatus {
            shutdown_started_at: None,
            taints,
            machine_failure: machine_failure::unless_ready(input, machine),
            connecting: input.observed.node == Node::Connecting,
            ..desired_status::keeping(input, Phase::Active, ready, message)
        },
        events: cancelled.into_iter().collect(),
        // The refs were lost and are stored by this reconcile; the next one can read the provider objects.
        wake_at: stored.refs.is_none().then_some(input.now),
    })
}

fn readiness(machine: &Machine, node: &Node) -> (Ready, String) {
    match (&machine.health, node) {
        (MachineHealth::Running, Node::Managed(node)) if node.ready => {
            (Ready::MachineRunning, format!("Machine is healthy and running as Node {}", node.name))
        }
        (MachineHealth::Running, Node::Managed(node)) => {
            (Ready::Provisioning, format!("Node {} is not Ready", node.name))
        }
        (MachineHealth::Running, Node::Unreachable(cause)) => {
            (Ready::Error, format!("Cannot access the workload cluster: {cause}"))
        }
        (
            MachineHealth::Running,
            Node::NotCached(absence @ Absence::NoKubeconfig { .. })
            | Node::Unidentified(absence @ Absence::NoKubeconfig { .. }),
        ) => (Ready::Error, absence.to_string()),
        (MachineHealth::Running, Node::Absent(absence) | Node::NotCached(absence) | Node::Unidentified(absence)) => {
            (Ready::Provisioning, absence.to_string())
        }
        (MachineHealth::Running, Node::Connecting) | (MachineHealth::Provisioning | MachineHealth::Failed(_), _) => {
            (Ready::Provisioning, waiting_for_node(&machine.name))
        }
    }
}

/// The same text for a Machine that was just created and for one that is being provisioned saves a status write.
fn waiting_for_node(machine: &str) -> String {
    format!("Waiting for Machine {machine} to join the cluster as a Node")
}

/// No Machine exists. Objects of an earlier one are removed first.
fn create(input: &DecisionInput<'_>) -> Result<Plan, NeedsRead> {
    let observed = input.observed;
    let Some(desired) = &observed.desired else {
        return Ok(blocked(input, "The spec does not name the objects to create"));
    };
    if has_leftovers(observed, desired)? {
        return removal::graceful(input, Cause::WindowClosed);
    }
    if [&observed.bootstrap, &observed.infrastructure].iter().any(|child| matches!(child, Child::Unmanaged(_))) {
        return Ok(name_conflict(input));
    }
    if let Some(waiting) = wait(input) {
        return Ok(waiting);
    }
    let stored = &observed.stored;
    // A shutdown or refs of an earlier machine must not count for this one: the recorded intent counts only without them.
    let is_outdated =
        stored.shutdown_started_at.is_some() || stored.refs.as_ref().is_some_and(|refs| *refs != desired.refs);
    let clear = is_outdated.then(|| {
        let message = format!("Creating Machine {}", desired.machine);
        Step::StoreStatus(Box::new(desired_status::empty(input, Phase::Pending, Ready::Provisioning, message)))
    });
    let record = if is_outdated || stored.refs.is_none() {
        Some(Step::RecordIntent(desired.refs.clone()))
    } else {
        desired_status::missing_finalizer(input)
    };
    let message = waiting_for_node(&desired.machine);
    Ok(Plan {
        steps: clear.into_iter().chain(record).chain([Step::CreateChildren]).collect(),
        status: DesiredStatus {
            refs: Some(desired.refs.clone()),
            ..desired_status::empty(input, Phase::Active, Ready::Provisioning, message)
        },
        events: Vec::new(),
        wake_at: None,
    })
}

/// What the creation has to wait for.
fn wait(input: &DecisionInput<'_>) -> Option<Plan> {
    let waiting = |phase, ready, message: &str| Plan {
        steps: Vec::new(),
        status: without_machine(input, phase, ready, message),
        events: Vec::new(),
        wake_at: None,
    };
    let cluster = input.spec.map_or_else(|_| String::new(), |spec| format!(" {}", spec.cluster_name));
    match input.observed.cluster {
        Cluster::Missing => {
            return Some(waiting(
                Phase::Error,
                Ready::Error,
                &format!("Cluster{cluster} does not exist; create it or correct spec.clusterName"),
            ));
        }
        Cluster::Deleting => {
            return Some(waiting(Phase::Error, Ready::Error, &format!("Cluster{cluster} is being deleted")));
        }
        Cluster::Paused => {
            let message = format!("Cluster{cluster} is paused; the machine is created once the Cluster is resumed");
            return Some(waiting(Phase::Pending, Ready::Provisioning, &message));
        }
        Cluster::Present => {}
    }
    let failure = machine_failure::waiting(input)?;
    let at = failure.retry_at.0;
    let message = format!("The last Machine failed ({}); creating the next one at {at}", failure.reason);
    Some(Plan { wake_at: Some(at), ..waiting(Phase::Error, Ready::Error, &message) })
}

/// No Machine exists; provider objects that were already created for the next one stay.
fn without_machine(input: &DecisionInput<'_>, phase: Phase, ready: Ready, message: &str) -> DesiredStatus {
    let observed = input.observed;
    if observed.bootstrap.managed().is_some() || observed.infrastructure.managed().is_some() {
        desired_status::keeping(input, phase, ready, message)
    } else {
        desired_status::empty(input, phase, ready, message)
    }
}

/// Whether objects of an earlier machine exist: of a shutdown that is not complete, of another kind or spec than desired
/// now, or adopted by a Machine that no longer exists.
fn has_leftovers(observed: &Observed, desired: &DesiredChildren) -> Result<bool, NeedsRead> {
    if observed.stored.refs.is_none() {
        return Ok(false);
    }
    if [&observed.bootstrap, &observed.infrastructure].iter().any(|child| matches!(child, Child::NotRead)) {
        return Err(NeedsRead::Children);
    }
    let children: Vec<&ProviderChild> =
        [&observed.bootstrap, &observed.infrastructure].into_iter().filter_map(Child::managed).collect();
    let is_outdated = |child: &&ProviderChild| {
        child.deleting || child.adopted_by.is_some() || child.fingerprint.as_ref() != Some(&desired.fingerprint)
    };
    Ok(!children.is_empty()
        && (observed.stored.shutdown_started_at.is_some()
            || observed.stored.refs.as_ref() != Some(&desired.refs)
            || children.iter().any(is_outdated)))
}

fn name_conflict(input: &DecisionInput<'_>) -> Plan {
    blocked(input, &input.observed.name_conflict().unwrap_or_default())
}

/// Only a user or another controller can resolve this; a watch reports when they have.
fn blocked(input: &DecisionInput<'_>, message: &str) -> Plan {
    Plan {
        steps: Vec::new(),
        status: desired_status::keeping(input, Phase::Error, Ready::Error, message),
        events: Vec::new(),
        wake_at: None,
    }
}
