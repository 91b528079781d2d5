//! Reports a reconcile: one status patch, none if nothing changed; events, metrics and log lines for each transition.

use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_planner::decide::undecided;
use fivespot_planner::events::{Event, Reason};
use fivespot_planner::observed::Pods;
use fivespot_planner::plan::{Action, DesiredStatus, ForceRemoval, Plan, Step};
use fivespot_planner::status::{Failure, Purpose, StatusContext, compute, merge_patch, transitions};
use jiff::{SignedDuration, Timestamp};
use kube::api::Patch;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::Scope;
use super::error::ReconcileError;
use super::write::patch_params;
use crate::runtime::request::Operation;

/// Reports a plan that was executed. If a best-effort step failed, that is the error of the reconcile.
pub(super) async fn report(scope: &mut Scope<'_>, plan: &Plan) -> Result<(), ReconcileError> {
    // What was done is reported whether the status can be written or not.
    plan.events.iter().filter(|event| is_about_a_step(event)).for_each(|event| publish(scope, event));
    record_drain(scope, plan);
    if let Some(failure) = scope.best_effort_failures.first() {
        return Err(failure.error.clone());
    }
    if !scope.finalizer_removed {
        store(scope, &plan.status).await?;
    } else if scope.object.is_reclaim_in_progress() {
        scope.context.metrics.record_reclaim("completed");
    }
    publish_stored(scope, plan);
    Ok(())
}

/// Reports a failure in the status.
pub(super) async fn report_failure(scope: &mut Scope<'_>, plan: Option<&Plan>, error: &ReconcileError) {
    for failure in &scope.best_effort_failures {
        let message = Some(failure.error.to_string());
        if matches!(failure.step, Step::RollOutAgent { .. }) {
            scope.outcome.agent_error = message;
        } else {
            scope.outcome.taint_error = message;
        }
        warn!(error = %failure.error, "Best-effort step failed");
    }
    if !scope.only_best_effort_failed() {
        let purpose = plan.map_or(Purpose::Maintain, |plan| purpose(&plan.steps));
        scope.outcome.failure = Some(Failure { purpose, message: message(error), references: error.references() });
        warn!(%error, "Reconcile failed");
    }
    let desired = plan.map_or_else(|| undecided(&scope.input()), |plan| plan.status.clone());
    match store(scope, &desired).await {
        Ok(()) => {
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

/// Writes the status, unless it is up to date.
pub(super) async fn store(scope: &mut Scope<'_>, desired: &DesiredStatus) -> Result<(), ReconcileError> {
    remove_unreadable_fields(scope).await?;
    let before = scope.object.status();
    let context = StatusContext {
        name: &scope.key.name,
        namespace: &scope.key.namespace,
        generation: scope.object.metadata.generation,
        machine_version: scope.context.served.version,
        previous: &before,
    };
    let after = compute(context, &scope.input(), desired, &scope.outcome);
    let Some(patch) = merge_patch(&value(&before), &value(&after)) else { return Ok(()) };
    patch_status(scope, patch).await?;
    report_transition(scope, &before, &after);
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
    let result = scope.request_object(operation, api.patch_status(&scope.key.name, &params, &patch)).await;
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
    if let Some(lateness) = boundary_lateness(before, after, scope.now) {
        metrics.record_boundary_lateness(lateness);
    }
    log_transition(before, after);
}

fn log_transition(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) {
    let time = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        at.as_ref().map_or_else(|| "never".to_owned(), |at| at.0.to_string())
    };
    match (before.in_schedule, after.in_schedule) {
        (Some(false) | None, Some(true)) => info!(until = time(&after.next_cleanup), "Window is open"),
        (Some(true) | None, Some(false)) => info!(opens = time(&after.next_activation), "Window is closed"),
        _ => {}
    }
    if let (None, Some(node)) = (&before.node_ref, &after.node_ref) {
        info!(node = node.name, "Node joined");
    }
    if before.phase != after.phase {
        let phase = |status: &ScheduledMachineStatus| status.phase.map_or("", Phase::as_str);
        let message = after.message.as_deref().unwrap_or_default();
        info!(from = phase(before), to = phase(after), reason = message, "Phase changed");
    }
}

/// Events that are true only once the status is stored.
fn publish_stored(scope: &Scope<'_>, plan: &Plan) {
    plan.events.iter().filter(|event| !is_about_a_step(event)).for_each(|event| publish(scope, event));
}

fn publish(scope: &Scope<'_>, event: &Event) {
    scope.context.events.publish(&scope.object, event, scope.now);
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
        Pods::Read { .. } => scope.context.metrics.record_drain("drained"),
        Pods::NotRead => {}
    }
}

/// What a plan is for; it selects the event of a failure.
fn purpose(steps: &[Step]) -> Purpose {
    let of_step = |step: &Step| match step {
        Step::AddFinalizer | Step::CreateChildren => Purpose::Create,
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
    last.is_some_and(|at| now.duration_since(at.0) < SignedDuration::from_hours(1))
}

/// How long after the boundary of a window the controller acted on it, if it did so now.
fn boundary_lateness(
    before: &ScheduledMachineStatus,
    after: &ScheduledMachineStatus,
    now: Timestamp,
) -> Option<Duration> {
    let boundary = match (before.in_schedule?, after.in_schedule?) {
        (false, true) => before.next_activation.as_ref(),
        (true, false) => before.next_cleanup.as_ref(),
        (true, true) | (false, false) => None,
    }?;
    now.duration_since(boundary.0).try_into().ok()
}

fn value(status: &ScheduledMachineStatus) -> Value {
    serde_json::to_value(status).unwrap_or_else(|_| json!({}))
}
