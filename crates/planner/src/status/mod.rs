//! Computes the status from the previous one, what was observed and what was done.

mod merge_patch;
mod messages;
mod rejected_pods;
mod transitions;

use fivespot_api::conditions::{NewCondition, NodeTainted, Ready, Reason as _, ReferencesValid, Stalled, bounded, set};
use fivespot_api::{NodeReference, ObjectReference, Phase, ReclaimStatus, ScheduledMachineStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::children::{ChildNames, MachineVersion};
use crate::input::DecisionInput;
use crate::intent::{Intent, stored_refs};
use crate::observed::{Absence, MachineHealth, Node, Ref};
use crate::plan::{DesiredStatus, TaintStatus};
use crate::taints;

pub use merge_patch::merge_patch;
pub use rejected_pods::{RejectedPod, Rejection, describe as describe_rejected_pods};
pub use transitions::transitions;

/// The object whose status is computed.
#[derive(Clone, Copy, Debug)]
pub struct StatusContext<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub generation: Option<i64>,
    /// The API version in which its Machine is written.
    pub machine_version: MachineVersion,
    pub previous: &'a ScheduledMachineStatus,
    /// The recorded intent that `previous` does not include.
    pub unobserved_intent: Option<&'a Intent>,
}

/// What the steps of a reconcile have achieved so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub machine: Option<CreatedMachine>,
    /// Uid of the bootstrap object, if this reconcile created or found it.
    pub bootstrap_uid: Option<String>,
    /// Uid of the infrastructure object, if this reconcile created or found it.
    pub infrastructure_uid: Option<String>,
    /// Pods whose eviction or deletion the workload cluster did not accept.
    pub rejected_pods: Vec<RejectedPod>,
    /// State of the taints, if this reconcile applied them.
    pub taints: Option<TaintStatus>,
    /// Whether this reconcile disabled the schedule for a reclaim.
    pub schedule_disabled: bool,
    /// Error of the best-effort step that applies taints.
    pub taint_error: Option<String>,
    /// Error of the best-effort step that rolls out the reclaim agent.
    pub agent_error: Option<String>,
    /// The failure that ended the reconcile.
    pub failure: Option<Failure>,
}

impl Outcome {
    fn is_success(&self) -> bool {
        self.taint_error.is_none() && self.agent_error.is_none() && self.failure.is_none()
    }
}

/// The Machine that this reconcile created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedMachine {
    pub uid: String,
    pub created_at: Option<Timestamp>,
}

/// The failure that ended a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub purpose: Purpose,
    pub message: String,
    /// Reason of condition `ReferencesValid`, if the failure is about a reference.
    pub references: Option<ReferencesValid>,
}

/// What the plan that failed was for; it selects the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    Create,
    Remove,
    Maintain,
}

/// Computes the status.
pub fn compute(
    context: StatusContext<'_>,
    input: &DecisionInput<'_>,
    desired: &DesiredStatus,
    outcome: &Outcome,
) -> ScheduledMachineStatus {
    let observed = input.observed;
    let previous = context.previous;
    let desired = &with_failure(desired, outcome, context, input);
    let schedule = input.spec.ok().map(|spec| &spec.schedule);
    let is_same_machine = is_same_machine(input, previous);
    let keep_node = is_same_machine && observed.node == Node::Connecting && !is_failed(input);
    let keep_health = is_same_machine && desired.connecting && previous.phase == Some(desired.phase);
    let message = bounded(messages::message(desired, input, outcome));
    let node_ref = node_ref(input, previous);
    let taints = outcome.taints.clone().or_else(|| desired.taints.clone());
    let desired_taints = || input.spec.map_or_else(|_| Vec::new(), |spec| spec.node_taints.clone());
    let taints = taints.or_else(|| node_ref.is_none().then(|| taints::no_node(&desired_taints())));
    let stalled = input.spec.err().filter(|_| desired.ready == Ready::InvalidSpec);
    let mut status = ScheduledMachineStatus {
        phase: Some(desired.phase),
        message: previous.message.clone().filter(|_| keep_health).or_else(|| Some(message.clone())),
        in_schedule: schedule.map(|schedule| schedule.is_open(input.now)),
        conditions: previous
            .conditions
            .iter()
            .filter(|it| stalled.is_some() || it.type_ != Stalled::CONDITION)
            .cloned()
            .collect(),
        machine_ref: machine_ref(context, input, outcome),
        bootstrap_ref: desired.refs.as_ref().map(|refs| {
            let observed_uid = observed.bootstrap.managed().map(|child| &child.uid);
            let uid = outcome.bootstrap_uid.as_ref().or(observed_uid);
            reference(context, &refs.bootstrap, uid, previous.bootstrap_ref.as_ref())
        }),
        infrastructure_ref: desired.refs.as_ref().map(|refs| {
            let observed_uid = observed.infrastructure.managed().map(|child| &child.uid);
            let uid = outcome.infrastructure_uid.as_ref().or(observed_uid);
            reference(context, &refs.infrastructure, uid, previous.infrastructure_ref.as_ref())
        }),
        node_ref,
        provider_id: observed.machine.managed().and_then(|machine| machine.provider_id.clone()),
        applied_node_taints: taints
            .as_ref()
            .map_or_else(|| previous.applied_node_taints.clone(), |taints| taints.applied.clone()),
        last_scheduled_time: created_at(input, outcome).map(Time).or(previous.last_scheduled_time.clone()),
        next_activation: schedule.and_then(|schedule| schedule.next_opening(input.now)).map(Time),
        next_cleanup: schedule.and_then(|schedule| schedule.current_close(input.now)).map(Time),
        shutdown_started_at: desired.shutdown_started_at.map(Time),
        initial_pods: desired
            .initial_pods
            .filter(|_| desired.shutdown_started_at.is_some())
            .and_then(|it| it.try_into().ok()),
        machine_failure: desired.machine_failure.clone(),
        reclaim: desired.reclaim.clone(),
        // A reconcile that failed has not dealt with the generation yet.
        observed_generation: if outcome.is_success() { context.generation } else { previous.observed_generation },
        observed_intent: context.unobserved_intent.map(|intent| intent.number).or(previous.observed_intent),
    };
    let mut condition = |new: NewCondition| set(&mut status.conditions, new, input.now);
    if !keep_health {
        condition(NewCondition::new(desired.ready, message, context.generation));
    }
    if let Some(errors) = stalled {
        condition(NewCondition::new(Stalled::InvalidSpec, errors.to_string(), context.generation));
    }
    let (scheduled, message) = messages::scheduled(input, desired);
    condition(NewCondition::new(scheduled, message, context.generation));
    if !keep_node {
        let (machine_ready, message) = messages::machine_ready(context.name, observed, outcome);
        condition(NewCondition::new(machine_ready, message, context.generation));
    }
    let message = messages::references(desired, input, outcome);
    condition(NewCondition::new(desired.references, message, context.generation));
    match taints.map(|taints| taints.condition) {
        Some(Some((reason, message))) => condition(NewCondition::new(reason, message, context.generation)),
        Some(None) => status.conditions.retain(|it| it.type_ != NodeTainted::CONDITION),
        None => {}
    }
    status
}

/// Whether the status is about the Machine that exists. While this process connects to its workload cluster, the status
/// stays as it is, so that a restart causes no transition.
fn is_same_machine(input: &DecisionInput<'_>, previous: &ScheduledMachineStatus) -> bool {
    let previous_uid = previous.machine_ref.as_ref().and_then(|reference| reference.uid.as_ref());
    input.observed.machine.managed().is_some_and(|machine| previous_uid == Some(&machine.uid))
}

fn is_failed(input: &DecisionInput<'_>) -> bool {
    input.observed.machine.managed().is_some_and(|it| matches!(it.health, MachineHealth::Failed(_)))
}

/// Applies a failure: what the status has stored stays, because the reconcile got no further.
fn with_failure(
    desired: &DesiredStatus,
    outcome: &Outcome,
    context: StatusContext<'_>,
    input: &DecisionInput<'_>,
) -> DesiredStatus {
    let previous = context.previous;
    let desired = &with_best_effort_errors(desired, outcome, previous);
    let Some(failure) = &outcome.failure else { return desired.clone() };
    // A reclaim in progress continues whatever fails meanwhile.
    let reclaiming = previous.reclaim.as_ref().is_some_and(|reclaim| reclaim.in_progress);
    let (phase, ready) =
        if reclaiming { (Phase::EmergencyRemove, Ready::EmergencyReclaim) } else { (Phase::Error, Ready::Error) };
    // The schedule is disabled once per reclaim: a later failure is no reason to repeat it and overwrite a user's edit.
    let disabled = reclaiming
        && (outcome.schedule_disabled || !input.requested.enabled)
        && desired.reclaim.as_ref().is_some_and(|reclaim| reclaim.schedule_disabled);
    let update =
        |reclaim: ReclaimStatus| ReclaimStatus { schedule_disabled: reclaim.schedule_disabled || disabled, ..reclaim };
    DesiredStatus {
        phase,
        ready,
        references: failure.references.unwrap_or(desired.references),
        message: failure.message.clone(),
        connecting: false,
        delete_by: None,
        refs: stored_refs(context.name, previous, context.unobserved_intent),
        shutdown_started_at: previous.shutdown_started_at.as_ref().map(|it| it.0.min(input.now)),
        initial_pods: previous.initial_pods.and_then(|it| it.try_into().ok()),
        machine_failure: desired.machine_failure.clone(),
        reclaim: previous.reclaim.clone().map(update),
        taints: None,
    }
}

/// Applies errors of best-effort steps.
fn with_best_effort_errors(
    desired: &DesiredStatus,
    outcome: &Outcome,
    previous: &ScheduledMachineStatus,
) -> DesiredStatus {
    let mut desired = desired.clone();
    if let Some(error) = &outcome.taint_error {
        let condition = Some((NodeTainted::PatchFailed, error.clone()));
        desired.taints = Some(TaintStatus { applied: previous.applied_node_taints.clone(), condition });
    }
    // In any other phase the object is not Ready anyway and has a more important message.
    if let Some(message) = messages::agent_error(outcome)
        && desired.phase == Phase::Active
    {
        (desired.ready, desired.message) = (Ready::Error, message);
    }
    desired
}

fn machine_ref(context: StatusContext<'_>, input: &DecisionInput<'_>, outcome: &Outcome) -> Option<ObjectReference> {
    let created = outcome.machine.as_ref().map(|machine| machine.uid.clone());
    let uid = created.or_else(|| input.observed.machine.managed().map(|machine| machine.uid.clone()))?;
    Some(ObjectReference {
        api_version: context.machine_version.api_version(),
        kind: "Machine".to_owned(),
        name: ChildNames::of(context.name).machine,
        namespace: context.namespace.to_owned(),
        uid: Some(uid),
    })
}

fn created_at(input: &DecisionInput<'_>, outcome: &Outcome) -> Option<Timestamp> {
    let created = outcome.machine.as_ref().and_then(|machine| machine.created_at);
    created.or_else(|| input.observed.machine.managed().and_then(|machine| machine.created_at))
}

fn reference(
    context: StatusContext<'_>,
    to: &Ref,
    uid: Option<&String>,
    previous: Option<&ObjectReference>,
) -> ObjectReference {
    let is_same =
        |it: &&ObjectReference| (&it.api_version, &it.kind, &it.name) == (&to.api_version, &to.kind, &to.name);
    ObjectReference {
        api_version: to.api_version.clone(),
        kind: to.kind.clone(),
        name: to.name.clone(),
        namespace: context.namespace.to_owned(),
        uid: uid.cloned().or_else(|| previous.filter(is_same).and_then(|it| it.uid.clone())),
    }
}

/// The Node; while it cannot be read, the one that was recorded for the same Machine.
fn node_ref(input: &DecisionInput<'_>, previous: &ScheduledMachineStatus) -> Option<NodeReference> {
    let machine = input.observed.machine.managed()?;
    match &input.observed.node {
        Node::Managed(node) => Some(NodeReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.name.clone(),
            uid: Some(node.uid.clone()),
        }),
        Node::Unreachable(_)
        | Node::Connecting
        | Node::NotCached(Absence::NoKubeconfig { .. })
        | Node::Unidentified(Absence::NoKubeconfig { .. }) => {
            previous.node_ref.clone().filter(|it| machine.node.as_ref() == Some(&it.name))
        }
        Node::Absent(_) | Node::NotCached(_) | Node::Unidentified(_) => None,
    }
}
