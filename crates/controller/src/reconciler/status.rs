//! Reports a reconcile: one status patch, none if nothing changed; events, metrics and log lines for each transition.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_planner::decide::undecided;
use fivespot_planner::events::{Event, Reason};
use fivespot_planner::input::DecisionInput;
use fivespot_planner::observed::Pods;
use fivespot_planner::plan::{Action, DesiredStatus, ForceRemoval, Plan, Step};
use fivespot_planner::retry::RetryState;
use fivespot_planner::status::{Failure, Purpose, StatusContext, compute, merge_patch, transitions};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::Scope;
use super::error::ReconcileError;
use super::write::patch_params;
use crate::runtime::request::Operation;

/// Reports a plan that was executed. If a best-effort step failed, that is the error of the reconcile. Returns when to
/// report it instead, if another client has changed the same report back.
pub(super) async fn report(
    scope: &mut Scope<'_>,
    plan: &Plan,
    retry: &mut RetryState,
) -> Result<Option<Timestamp>, ReconcileError> {
    // What was done is reported whether the status can be written or not.
    plan.events.iter().filter(|event| is_about_a_step(event)).for_each(|event| publish(scope, event));
    record_drain(scope, plan);
    if let Some(failure) = scope.best_effort_failures.first() {
        return Err(failure.error.clone());
    }
    if !scope.finalizer_removed {
        if let Some(at) = store_report(scope, &plan.status, retry).await? {
            return Ok(Some(at));
        }
    } else if scope.object.is_reclaim_in_progress() {
        scope.context.metrics.record_reclaim("completed");
    }
    publish_stored(scope, plan);
    Ok(None)
}

/// Reports a failure in the status. The next attempt reports it if another client has changed the same report back.
pub(super) async fn report_failure(
    scope: &mut Scope<'_>,
    plan: Option<&Plan>,
    error: &ReconcileError,
    retry: &mut RetryState,
) {
    let mut is_removal_incomplete = false;
    for failure in &scope.best_effort_failures {
        let message = Some(failure.error.to_string());
        match failure.step {
            Step::RollOutAgent { .. } => scope.outcome.agent_error = message,
            Step::ForceRemove(_) => is_removal_incomplete = true,
            _ => scope.outcome.taint_error = message,
        }
        warn!(error = %failure.error, "Best-effort step failed");
    }
    if !scope.only_best_effort_failed() || is_removal_incomplete {
        let purpose = plan.map_or(Purpose::Maintain, |plan| purpose(&plan.steps));
        scope.outcome.failure = Some(Failure { purpose, message: message(error), references: error.references() });
        warn!(%error, "Reconcile failed");
    }
    let desired = plan.map_or_else(|| undecided(&scope.input()), |plan| plan.status.clone());
    match store_report(scope, &desired, retry).await {
        Ok(_) => {
            if let Some(plan) = plan.filter(|_| scope.only_best_effort_failed()) {
                publish_stored(scope, plan);
            }
        }
        Err(error) => warn!(%error, "Cannot report the failure in the status"),
    }
}

/// Error texts start in lower case, messages of a status do not.
fn message(error: &ReconcileError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Writes the status, unless it is up to date or another client has changed the same status back: then it returns when to
/// write it.
async fn store_report(
    scope: &mut Scope<'_>,
    desired: &DesiredStatus,
    retry: &mut RetryState,
) -> Result<Option<Timestamp>, ReconcileError> {
    let Some(change) = change(scope, desired) else { return Ok(None) };
    let fingerprint = fingerprint(&change.after);
    if let Some(at) = retry.report_postponed_until(fingerprint, scope.now) {
        return Ok(Some(at));
    }
    write(scope, change).await?;
    retry.reported(fingerprint, scope.now);
    Ok(None)
}

/// Hash of what a status says, without times.
fn fingerprint(status: &ScheduledMachineStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (status.phase, &status.message, status.observed_generation).hash(&mut hasher);
    for Condition { type_, status, reason, message, .. } in &status.conditions {
        (type_, status, reason, message).hash(&mut hasher);
    }
    hasher.finish()
}

struct StatusChange {
    before: ScheduledMachineStatus,
    after: ScheduledMachineStatus,
    /// `None` if only fields that cannot be read have to be removed.
    patch: Option<Value>,
}

/// What has to be written; `None` if the status is up to date.
fn change(scope: &Scope<'_>, desired: &DesiredStatus) -> Option<StatusChange> {
    let before = scope.object.status();
    let context = StatusContext {
        name: &scope.key.name,
        namespace: &scope.key.namespace,
        generation: scope.object.metadata.generation,
        machine_version: scope.context.served.version,
        previous: &before,
        unobserved_intent: scope.object.unobserved_intent.as_deref(),
    };
    let after = compute(context, &scope.input(), desired, &scope.outcome);
    let patch = merge_patch(&value(&before), &value(&after));
    let is_changed = patch.is_some() || !scope.object.unreadable_status.is_empty();
    is_changed.then_some(StatusChange { before, after, patch })
}

/// Writes the status, unless it is up to date.
pub(super) async fn store(scope: &mut Scope<'_>, desired: &DesiredStatus) -> Result<(), ReconcileError> {
    match change(scope, desired) {
        Some(change) => write(scope, change).await,
        None => Ok(()),
    }
}

async fn write(scope: &mut Scope<'_>, change: StatusChange) -> Result<(), ReconcileError> {
    let StatusChange { before, after, patch } = change;
    remove_unreadable_fields(scope).await?;
    if let Some(patch) = patch {
        patch_status(scope, patch).await?;
        report_transition(scope, &before, &after);
    }
    Ok(())
}

/// Removes what cannot be read: a merge patch would keep parts of it.
async fn remove_unreadable_fields(scope: &mut Scope<'_>) -> Result<(), ReconcileError> {
    let unreadable = &scope.object.unreadable_status;
    if unreadable.is_empty() {
        return Ok(());
    }
    warn!(fields = unreadable.join(", "), "Removing fields of the status that cannot be read");
    let patch = unreadable.iter().map(|field| (field.clone(), Value::Null)).collect();
    patch_status(scope, patch).await
}

/// Sends the patch, with the `resourceVersion` that the decision was based on.
async fn patch_status(scope: &mut Scope<'_>, patch: Value) -> Result<(), ReconcileError> {
    let operation = Operation::new("patch", format!("status of ScheduledMachine {}", scope.key));
    let (api, patch) = (scope.api(), scope.with_resource_version(json!({ "status": patch })));
    let (params, patch) = (patch_params(), Patch::Merge(&patch));
    let result = scope.write(operation, api.patch_status(&scope.key.name, &params, &patch)).await;
    scope.apply_response(result)?;
    debug!("Patched status");
    Ok(())
}

fn report_transition(scope: &Scope<'_>, before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) {
    let metrics = &scope.context.metrics;
    for event in transitions(before, after, &scope.outcome, &scope.input()) {
        match event.reason {
            Reason::KillSwitchActivated => metrics.record_kill_switch_activation(),
            Reason::EmergencyReclaim => {
                metrics.record_reclaim("started");
                if was_reclaimed_recently(before, scope.now) {
                    metrics.record_reclaim("repeated");
                }
            }
            _ => {}
        }
        publish(scope, &event);
    }
    if is_reclaiming(before) && !is_reclaiming(after) {
        metrics.record_reclaim("completed");
    }
    if let Some(lateness) = boundary_lateness(before, after, &scope.input()) {
        metrics.record_boundary_lateness(lateness);
    }
    log_transition(scope, before, after);
}

/// Logs a transition, the same one of an object not often: the server of its workload cluster may cause it again and again.
fn log_transition(scope: &Scope<'_>, before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) {
    let allows_log = |what: &str| scope.context.workload_clusters.allows_log(scope.key, what);
    let time = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        at.as_ref().map_or_else(|| "never".to_owned(), |at| at.0.to_string())
    };
    match (before.in_schedule, after.in_schedule) {
        (Some(false) | None, Some(true)) => info!(until = time(&after.next_cleanup), "Window is open"),
        (Some(true) | None, Some(false)) => info!(opens = time(&after.next_activation), "Window is closed"),
        _ => {}
    }
    if let (None, Some(node)) = (&before.node_ref, &after.node_ref)
        && allows_log("join")
    {
        info!(node = node.name, "Node joined");
    }
    if before.phase != after.phase {
        let phase = |status: &ScheduledMachineStatus| status.phase.map_or("", Phase::as_str);
        let (from, to) = (phase(before), phase(after));
        if allows_log(&format!("{from} to {to}")) {
            info!(from, to, reason = after.message.as_deref().unwrap_or_default(), "Phase changed");
        }
    }
}

/// Events that are true only once the status is stored.
fn publish_stored(scope: &Scope<'_>, plan: &Plan) {
    plan.events.iter().filter(|event| !is_about_a_step(event)).for_each(|event| publish(scope, event));
}

fn publish(scope: &Scope<'_>, event: &Event) {
    scope.context.events.publish(&scope.object, event, event.at.unwrap_or(scope.now), scope.id);
}

/// Whether an event is about a step that was executed, whatever becomes of the status.
fn is_about_a_step(event: &Event) -> bool {
    event.reason == Reason::DrainTimedOut
}

fn record_drain(scope: &Scope<'_>, plan: &Plan) {
    let is_delete = |action: &Action| matches!(action, Action::DeleteMachine { .. });
    let deleted = plan.steps.iter().any(|step| matches!(step, Step::Run(action) if is_delete(action)));
    let timed_out = plan.events.iter().any(|event| event.reason == Reason::DrainTimedOut);
    match &scope.observed.pods {
        _ if !deleted => {}
        _ if timed_out => scope.context.metrics.record_drain("timed_out"),
        Pods::Read(_) => scope.context.metrics.record_drain("drained"),
        Pods::NotRead => {}
    }
}

/// What a plan is for; it selects the event of a failure.
fn purpose(steps: &[Step]) -> Purpose {
    let of_step = |step: &Step| match step {
        Step::AddFinalizer | Step::RecordIntent(_) | Step::CreateChildren => Purpose::Create,
        Step::ApplyTaints { .. } | Step::StoreStatus(_) | Step::Run(Action::Uncordon | Action::ClearExclusions) => {
            Purpose::Maintain
        }
        Step::RemoveFinalizer
        | Step::DisableSchedule
        | Step::EvictPods(_)
        | Step::RollOutAgent { .. }
        | Step::ForceRemove(ForceRemoval { .. })
        | Step::Run(
            Action::SetExclusions(_)
            | Action::DeleteMachine { .. }
            | Action::DeleteProviderObject { .. }
            | Action::Cordon
            | Action::DeletePods(_)
            | Action::DeleteAllPods
            | Action::WithdrawAgent
            | Action::ClearReclaimRequest,
        ) => Purpose::Remove,
    };
    let purposes: Vec<Purpose> = steps.iter().map(of_step).collect();
    if purposes.contains(&Purpose::Create) {
        Purpose::Create
    } else if purposes.iter().all(|purpose| *purpose == Purpose::Maintain) {
        Purpose::Maintain
    } else {
        Purpose::Remove
    }
}

fn is_reclaiming(status: &ScheduledMachineStatus) -> bool {
    status.reclaim.as_ref().is_some_and(|reclaim| reclaim.in_progress)
}

/// Whether the machine was reclaimed within the last hour: it was lent again while its owner was using it.
fn was_reclaimed_recently(before: &ScheduledMachineStatus, now: Timestamp) -> bool {
    let last = before.reclaim.as_ref().and_then(|reclaim| reclaim.requested_at.as_ref());
    // A time in the future says nothing: it is from the clock of the owner's machine.
    last.is_some_and(|at| (SignedDuration::ZERO..SignedDuration::from_hours(1)).contains(&now.duration_since(at.0)))
}

/// How long after the boundary of a window the controller acted on it, if it did so now.
fn boundary_lateness(
    before: &ScheduledMachineStatus,
    after: &ScheduledMachineStatus,
    input: &DecisionInput<'_>,
) -> Option<Duration> {
    let boundary = match (before.in_schedule?, after.in_schedule?) {
        (false, true) => before.next_activation.as_ref(),
        (true, false) => before.next_cleanup.as_ref(),
        (true, true) | (false, false) => None,
    }?;
    // Users may be able to write the status, and the metric is about all objects: only the last boundary counts.
    // The status has whole seconds.
    let schedule = &input.spec.ok()?.schedule;
    let second = SignedDuration::from_secs(1);
    let change = schedule.next_change(boundary.0.saturating_sub(second).ok()?)?;
    let is_boundary = change >= boundary.0 && change.duration_since(boundary.0) < second;
    let is_last = schedule.next_change(change).is_none_or(|next| next > input.now);
    let lateness = input.now.duration_since(change).try_into().ok();
    lateness.filter(|_| is_boundary && is_last)
}

fn value(status: &ScheduledMachineStatus) -> Value {
    serde_json::to_value(status).unwrap_or_else(|_| json!({}))
}
