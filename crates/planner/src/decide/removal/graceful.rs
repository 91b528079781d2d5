//! Graceful shutdown: cordon, evict, then delete the Machine when it is drained or when the drain has timed out.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::{SignedDuration, Timestamp};

use super::super::desired_status;
use super::super::goal::Cause;
use super::{after, after_pods, cordon, delete_leftovers, exclude_and_delete, poll_at};
use crate::drain::DrainAction;
use crate::events::{Event, Reason};
use crate::input::DecisionInput;
use crate::machine_failure;
use crate::observed::{Child, Cluster, Exclusions, Machine, MachineHealth, ManagedNode, Node, NodePod, Observed, Pods};
use crate::plan::{Action, DesiredStatus, NeedsRead, Plan, PodKey, Step};

const MAX_POD_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
const MAX_LEFTOVER_POLL_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

struct Deadlines {
    now: Timestamp,
    started: Timestamp,
    /// From here on the shutdown no longer waits for pods.
    drain: Timestamp,
    /// From here on Cluster API no longer waits for volumes.
    shutdown: Timestamp,
}

/// Whether a Machine is deleted with its Node drained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drain {
    /// Drained, timed out, or there is no Node: Cluster API is asked to skip the drain.
    Finished,
    /// The controller has no access to the Node. Cluster API may have it and drains within its own timeout.
    LeftToClusterApi,
}

/// What the shutdown does next.
struct Progress {
    steps: Vec<Step>,
    message: String,
    delete_by: Option<Timestamp>,
    event: Option<Event>,
    wake_at: Option<Timestamp>,
}

impl Progress {
    fn new(steps: Vec<Step>, message: impl Into<String>, wake_at: Option<Timestamp>) -> Self {
        Progress { steps, message: message.into(), delete_by: None, event: None, wake_at }
    }
}

pub(in super::super) fn plan(input: &DecisionInput<'_>, cause: Cause) -> Result<Plan, NeedsRead> {
    let DecisionInput { requested, observed, now, .. } = *input;
    let running = observed.machine.managed().filter(|machine| !machine.deleting);
    if running.is_some() && observed.cluster == Cluster::Paused {
        return Ok(paused(input));
    }
    let started = input.shutdown_started_at().unwrap_or(now);
    let deadlines = Deadlines {
        now,
        started,
        drain: after(started, requested.drain_timeout()),
        shutdown: after(started, requested.graceful_shutdown_timeout),
    };
    let progress = match (&observed.machine, running) {
        (_, Some(machine)) => drain(observed, machine, &deadlines)?,
        (Child::Managed(deleting), None) => wait_for_deletion(deleting, &deadlines),
        (Child::NotRead | Child::Absent | Child::Unmanaged(_), None) => Progress::new(
            delete_leftovers(observed),
            "Machine is deleted; waiting for its bootstrap and infrastructure objects to be deleted",
            Some(poll_at(started, now, MAX_LEFTOVER_POLL_INTERVAL)),
        ),
    };
    let status = DesiredStatus {
        shutdown_started_at: Some(started),
        initial_pods: observed.initial_pods(),
        connecting: progress.delete_by.is_some() && observed.node == Node::Connecting,
        delete_by: progress.delete_by,
        ..status(input, cause, progress.message)
    };
    let finalizer = desired_status::missing_finalizer(input);
    // Both have to survive the removal of the Machine.
    let is_stored = observed.stored.shutdown_started_at == Some(started)
        && observed.stored.machine_failure == status.machine_failure;
    let store = (!is_stored).then(|| Step::StoreStatus(Box::new(status.clone())));
    Ok(Plan {
        steps: finalizer.into_iter().chain(store).chain(progress.steps).collect(),
        status,
        events: progress.event.into_iter().collect(),
        wake_at: progress.wake_at,
    })
}

/// Pods are not evicted while the Cluster is paused, so their time starts when it is resumed.
fn paused(input: &DecisionInput<'_>) -> Plan {
    let message = "Cluster is paused; the machine is removed once the Cluster is resumed";
    let status = desired_status::keeping(input, Phase::ShuttingDown, Ready::ShuttingDown, message);
    Plan {
        steps: desired_status::finalizer_for_children(input).into_iter().collect(),
        status: DesiredStatus { shutdown_started_at: None, ..status },
        events: Vec::new(),
        wake_at: None,
    }
}

fn status(input: &DecisionInput<'_>, cause: Cause, message: String) -> DesiredStatus {
    let shutting_down =
        |message: String| desired_status::keeping(input, Phase::ShuttingDown, Ready::ShuttingDown, message);
    match cause {
        Cause::Deleted => shutting_down(format!("ScheduledMachine is being deleted. {message}")),
        Cause::MachineFailed => {
            let failed = input.observed.machine.managed().and_then(|machine| match &machine.health {
                MachineHealth::Failed(reason) => Some((machine, reason.as_str())),
                MachineHealth::Provisioning | MachineHealth::Running => None,
            });
            let reason = failed.map_or("unknown reason", |(_, reason)| reason);
            let message = format!("Machine failed and will be recreated ({reason}). {message}");
            DesiredStatus {
                machine_failure: failed.map(|(machine, reason)| machine_failure::record(input, machine, reason)),
                ..desired_status::keeping(input, Phase::Error, Ready::Error, message)
            }
        }
        Cause::Reclaimed | Cause::KillSwitch | Cause::WindowClosed => shutting_down(message),
    }
}

fn drain(observed: &Observed, machine: &Machine, deadlines: &Deadlines) -> Result<Progress, NeedsRead> {
    let delete = |cause: &str, drain: Drain| {
        let exclusions =
            Exclusions { node_drain: drain == Drain::Finished, volume_detach: deadlines.now >= deadlines.shutdown };
        let steps = exclude_and_delete(machine, exclusions).into_iter().map(Step::Run).collect();
        let wake_at = (deadlines.now < deadlines.shutdown).then_some(deadlines.shutdown);
        Progress::new(steps, format!("{cause}; deleting Machine {}", machine.name), wake_at)
    };
    let wait = |steps: Vec<Step>, message: String| {
        let evictions = steps.iter().map(|step| if let Step::EvictPods(pods) = step { pods.len() } else { 0 }).sum();
        let poll_at = poll_at(deadlines.started, deadlines.now, MAX_POD_POLL_INTERVAL);
        let poll_at = poll_at.max(after_pods(deadlines.now, evictions));
        Progress {
            delete_by: Some(deadlines.drain),
            ..Progress::new(steps, message, Some(poll_at.min(deadlines.drain)))
        }
    };
    let timed_out = deadlines.now >= deadlines.drain;
    let initial = observed.initial_pods().unwrap_or_default();
    let time_out = |remaining: String, drain: Drain| {
        let waited = deadlines.drain.duration_since(deadlines.started);
        let cause = format!("Drain timed out after {} {remaining}", duration(waited));
        let note = format!("{cause}; deleting Machine {}", machine.name);
        let event = Event { at: Some(deadlines.drain), ..Event::new(Reason::DrainTimedOut, note) };
        Progress { event: Some(event), ..delete(&cause, drain) }
    };
    Ok(match (&observed.node, &observed.pods) {
        // A cached Machine without nodeRef may have joined since: its Node must be drained first.
        (Node::Absent(_), _) if machine.node.is_none() && !machine.live => return Err(NeedsRead::Machine),
        (Node::Absent(absence), _) => delete(&format!("No Node to drain ({absence})"), Drain::Finished),
        (Node::NotCached(_), _) => return Err(NeedsRead::Node),
        (Node::Managed(_), Pods::NotRead) => return Err(NeedsRead::Pods),
        (Node::Connecting, _) if timed_out => {
            time_out("while connecting to the workload cluster".to_owned(), Drain::LeftToClusterApi)
        }
        (Node::Connecting, _) => wait(Vec::new(), "Connecting to the workload cluster".to_owned()),
        (Node::Unreachable(cause), _) if timed_out => {
            let remaining = format!("because the workload cluster cannot be accessed: {cause}");
            time_out(remaining, Drain::LeftToClusterApi)
        }
        (Node::Unreachable(cause), _) => wait(Vec::new(), format!("Cannot access the workload cluster: {cause}")),
        // Another Machine's Node is not drained, but this Machine may have a Node with pods.
        (Node::Unidentified(absence), _) if timed_out => {
            time_out(format!("because the Node cannot be identified: {absence}"), Drain::LeftToClusterApi)
        }
        (Node::Unidentified(absence), _) => wait(Vec::new(), format!("Cannot identify the Node to drain: {absence}")),
        // Both are required in one observation: the Node accepts no new pods, and none is left.
        (Node::Managed(node), Pods::Read(pods)) if !node.cordon.accepts_pods() && remaining(pods) == 0 => {
            delete(&format!("Drained Node {}", node.name), Drain::Finished)
        }
        (Node::Managed(_), Pods::Read(pods)) if timed_out => {
            time_out(format!("with {}", remaining_of(remaining(pods), initial)), Drain::Finished)
        }
        (Node::Managed(node), Pods::Read(pods)) => {
            let message = format!("Draining Node {}: {}", node.name, remaining_of(remaining(pods), initial));
            wait(evict(node, pods), message)
        }
    })
}

fn evict(node: &ManagedNode, pods: &[NodePod]) -> Vec<Step> {
    let cordon = cordon(&Node::Managed(node.clone())).into_iter().map(Step::Run);
    let pods: Vec<PodKey> = pods.iter().filter(|pod| pod.drain == DrainAction::Evict).map(PodKey::of).collect();
    let evict = (!pods.is_empty()).then_some(Step::EvictPods(pods));
    cordon.chain(evict).collect()
}

fn remaining(pods: &[NodePod]) -> usize {
    pods.iter().filter(|pod| pod.blocks_drain()).count()
}

/// "1 of 4 pods remaining".
fn remaining_of(remaining: usize, initial: usize) -> String {
    let total = initial.max(remaining);
    let noun = if total == 1 { "pod" } else { "pods" };
    if total == 0 { "no pods remaining".to_owned() } else { format!("{remaining} of {total} {noun} remaining") }
}

/// "5m", "90s", as durations are written in the spec.
fn duration(duration: SignedDuration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

fn wait_for_deletion(machine: &Machine, deadlines: &Deadlines) -> Progress {
    let overdue = deadlines.now >= deadlines.shutdown;
    let exclude = overdue && !machine.exclusions.volume_detach;
    Progress::new(
        if exclude { vec![Step::Run(Action::SetExclusions(Exclusions::ALL))] } else { Vec::new() },
        format!("Waiting for Cluster API to delete Machine {}", machine.name),
        (!overdue).then_some(deadlines.shutdown),
    )
}
