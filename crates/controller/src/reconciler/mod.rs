//! One reconcile of one ScheduledMachine: validate, observe, decide, execute, report.
//!
//! All decisions are made in `fivespot-planner`, which has no client. Everything that a decision depends on is read in
//! [`observe`]. All writes are in [`execute`] and [`status`]. A write reads only what it needs itself: the inline specs and
//! the kind that it creates, the object that it conflicts with, the pods that a force removal deletes.
//! [`triggers`] says which watch event reconciles which object.

mod context;
mod error;
mod execute;
mod observe;
mod status;
pub(crate) mod triggers;
mod write;

use std::time::Duration;

use fivespot_planner::children::InlineSpecs;
use fivespot_planner::decide::decide;
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::observed::Observed;
use fivespot_planner::plan::{Decision, Plan, Step};
use fivespot_planner::retry::{FailureClass, MAX_FORCE_REMOVAL_BACKOFF, RetryDecision, RetryState};
use fivespot_planner::status::Outcome;
use fivespot_validation::validate::{SpecErrors, ValidSpec};
use jiff::Timestamp;
use tracing::{Instrument as _, Span, debug, error_span, field, warn};

pub(crate) use context::{Context, ContextDeps};
pub(crate) use error::ReconcileError;

use crate::object::StoredObject;
use crate::runtime::permits::Urgency;
use crate::runtime::reconcile_id::ReconcileId;
use crate::runtime::workqueue::Key;
use crate::telemetry::traces::record_trace_id;

/// Limit of a requeue, so that a stepped clock or a suspended host is noticed.
const MAX_REQUEUE: Duration = Duration::from_mins(1);

/// When to reconcile an object again if no event triggers it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// The object no longer exists.
    Never,
    After(Duration),
}

impl Requeue {
    fn at(at: Option<Timestamp>, now: Timestamp) -> Self {
        let after = at.map_or(MAX_REQUEUE, |at| at.duration_since(now).try_into().unwrap_or(Duration::ZERO));
        Requeue::After(after.min(MAX_REQUEUE))
    }
}

/// Everything that belongs to one reconcile: what was read, what the decision is based on, and what has been done so far.
struct Scope<'a> {
    context: &'a Context,
    key: &'a Key,
    id: ReconcileId,
    /// The object that the decision is made from, or the result of the last write to it in this reconcile. Every write to it
    /// carries its `resourceVersion`, so a concurrent edit wins.
    object: StoredObject,
    /// The inline specs of `object`, if a write in this reconcile returned them and it creates the children.
    inline_specs: Option<InlineSpecs>,
    creates_children: bool,
    requested: RequestedState,
    spec: Result<ValidSpec, SpecErrors>,
    observed: Observed,
    /// Time of this reconcile, read once.
    now: Timestamp,
    outcome: Outcome,
    /// The finalizer was removed, so the object no longer exists.
    finalizer_removed: bool,
    /// Every step was attempted: only best-effort steps can have failed.
    all_steps_attempted: bool,
    best_effort_failures: Vec<BestEffortFailure>,
}

/// A step that failed and that no other step depends on.
struct BestEffortFailure {
    step: Step,
    error: ReconcileError,
}

impl<'a> Scope<'a> {
    /// Validates the spec and observes everything that the caches have.
    fn new((context, key, id): (&'a Context, &'a Key, ReconcileId), object: &StoredObject, now: Timestamp) -> Self {
        let spec = object.validate(&key.namespace);
        context.metrics.record_schedule_evaluation(if spec.is_ok() { "ok" } else { "invalid" });
        Scope {
            context,
            key,
            id,
            requested: object.requested(),
            object: object.clone(),
            inline_specs: None,
            creates_children: false,
            observed: observe::from_caches(context, key, object, spec.as_ref().ok()),
            spec,
            now,
            outcome: Outcome::default(),
            finalizer_removed: false,
            all_steps_attempted: false,
            best_effort_failures: Vec::new(),
        }
    }
}

impl Scope<'_> {
    fn input(&self) -> DecisionInput<'_> {
        DecisionInput { requested: &self.requested, spec: self.spec.as_ref(), observed: &self.observed, now: self.now }
    }

    /// Whether the plan was executed except for best-effort steps.
    fn only_best_effort_failed(&self) -> bool {
        self.all_steps_attempted && !self.best_effort_failures.is_empty()
    }
}

/// How far a reconcile got; [`handle_error`] reports and retries with this.
struct Attempt<'a> {
    id: ReconcileId,
    retry: RetryState,
    scope: Option<Scope<'a>>,
    plan: Option<Plan>,
}

/// Reconciles one object and handles the failure, if there is one. Returns the value of the metric's label `result` too.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> (Requeue, &'static str) {
    let id = ReconcileId::random();
    let span = error_span!(
        "reconcile",
        scheduledmachine = %key,
        reconcile = %id,
        generation = field::Empty,
        result = field::Empty,
        trace_id = field::Empty,
    );
    record_trace_id(&span);
    async {
        // Boxed, because it is large.
        let (requeue, result) = Box::pin(reconcile_in_span(context, key, id)).await;
        Span::current().record("result", result);
        (requeue, result)
    }
    .instrument(span)
    .await
}

async fn reconcile_in_span(context: &Context, key: &Key, id: ReconcileId) -> (Requeue, &'static str) {
    let mut attempt = Attempt { id, retry: context.take_retry_state(key), scope: None, plan: None };
    let (requeue, result) = match try_reconcile(context, key, &mut attempt).await {
        Ok(Requeue::Never) => return (Requeue::Never, "gone"),
        Ok(requeue) => (requeue, "done"),
        Err(error) => (handle_error(context, key, error, &mut attempt).await, "failed"),
    };
    context.put_retry_state(key, attempt.retry);
    (requeue, result)
}

/// Validates, observes, decides, executes and reports. Sends no request if nothing changed.
async fn try_reconcile<'a>(
    context: &'a Context,
    key: &'a Key,
    attempt: &mut Attempt<'a>,
) -> Result<Requeue, ReconcileError> {
    // Sends a request only after a write with an unknown outcome.
    let Some(object) = observe::latest(context, key).await? else {
        context.forget(key);
        return Ok(Requeue::Never);
    };
    let now = Timestamp::now();
    let Attempt { id, retry, scope, plan } = attempt;
    let mut decided = decide_for(scope.insert(Scope::new((context, key, *id), &object, now)), retry).await?;
    // Another instance may have written what the watch has not delivered yet. A plan without steps needs no check: it writes
    // nothing, or the status, with the version that it is based on.
    if !decided.steps.is_empty() && context.may_be_outdated(key) {
        context.mark_uncertain(key);
        let Some(object) = observe::latest(context, key).await? else {
            context.forget(key);
            return Ok(Requeue::Never);
        };
        decided = decide_for(scope.insert(Scope::new((context, key, *id), &object, now)), retry).await?;
    }
    let plan = plan.insert(decided);
    let scope = scope.as_mut().expect("it was inserted for the decision");
    scope.creates_children = plan.steps.contains(&Step::CreateChildren);
    debug!(?plan, "Decided");
    if let Some(at) = retry.backoff_until(&plan.steps, scope.now) {
        return Ok(Requeue::at(Some(at.min(next_due(plan.wake_at, scope.now))), scope.now));
    }
    // An event, or another step that is due, does not end the time that the API server requested.
    if let Some(after) = context.postponed_for(key) {
        return Ok(Requeue::After(after.min(MAX_REQUEUE)));
    }
    // Every write except the status, then one status patch, none if equal, and events.
    execute::execute(scope, &plan.steps).await?;
    let postponed = status::report(scope, plan, retry).await?;
    retry.succeeded();
    Ok(Requeue::at(requeue_at(plan.wake_at, postponed, scope.now), scope.now))
}

/// Decides from the object, after its spec was validated and everything else was observed.
async fn decide_for(scope: &mut Scope<'_>, retry: &mut RetryState) -> Result<Plan, ReconcileError> {
    Span::current().record("generation", scope.object.metadata.generation);
    retry.observe_generation(scope.object.metadata.generation);
    // Pure, except for the reads that it requests.
    decide_with_reads(scope).await
}

/// Decides, and reads from API servers what the decision depends on.
async fn decide_with_reads(scope: &mut Scope<'_>) -> Result<Plan, ReconcileError> {
    let mut reads = Vec::new();
    loop {
        match decide(&scope.input()) {
            Decision::Execute(plan) => return Ok(*plan),
            Decision::NeedsRead(read) if reads.contains(&read) => return Err(ReconcileError::Undecided { read }),
            Decision::NeedsRead(read) => {
                reads.push(read);
                observe::live_read(scope, read).await?;
            }
        }
    }
}

/// Reports a failure that needs attention, and decides when to retry.
async fn handle_error(context: &Context, key: &Key, error: ReconcileError, attempt: &mut Attempt<'_>) -> Requeue {
    context.metrics.record_error(error.metric_label());
    if let Some(after) = error.retry_after() {
        context.postpone(key, after);
    }
    let Some(class) = error.class() else { return Requeue::After(MAX_REQUEUE) };
    let Attempt { retry, scope, plan, .. } = attempt;
    let Some(scope) = scope else {
        // The object could not be read, so its status cannot be written either. Whatever the cause, the read is retried soon.
        let now = Timestamp::now();
        let retry_at = match retry.failed(&[], FailureClass::Transient, now) {
            RetryDecision::Retry(at) => at,
            RetryDecision::Report(at) => {
                warn!(%error, "Reconcile failed");
                at
            }
        };
        let max = match context.urgency(key) {
            Urgency::Urgent => MAX_FORCE_REMOVAL_BACKOFF.unsigned_abs(),
            Urgency::Ordinary => MAX_REQUEUE,
        };
        return match Requeue::at(Some(retry_at), now) {
            Requeue::After(after) => Requeue::After(after.min(max)),
            Requeue::Never => Requeue::Never,
        };
    };
    // Do not back off past the next boundary or the drain deadline.
    let wake_at = plan.as_ref().map_or_else(|| scope.input().next_boundary(), |plan| plan.wake_at);
    let due = next_due(wake_at, scope.now);
    let retry_at = match retry.failed(&attempted_steps(scope, plan.as_ref()), class, scope.now) {
        RetryDecision::Retry(at) => {
            debug!(%error, "Reconcile failed; retrying");
            at
        }
        RetryDecision::Report(at) => {
            status::report_failure(scope, plan.as_ref(), &error, retry).await;
            at
        }
    };
    Requeue::at(Some(retry_at.min(due)), scope.now)
}

/// The steps that back off. If only best-effort steps failed, the others do not wait for them.
fn attempted_steps(scope: &Scope<'_>, plan: Option<&Plan>) -> Vec<Step> {
    match plan {
        Some(_) if scope.only_best_effort_failed() => {
            scope.best_effort_failures.iter().map(|failure| failure.step.clone()).collect()
        }
        Some(plan) => plan.steps.clone(),
        None => Vec::new(),
    }
}

/// When to reconcile again after a plan. What is due now may depend on the report: it has to wait for one that is postponed.
fn requeue_at(wake_at: Option<Timestamp>, postponed: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    match postponed {
        Some(at) => Some(at.min(next_due(wake_at, now))),
        None => wake_at,
    }
}

/// When something else is due in the future. What is due now has just failed and backs off instead.
fn next_due(at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    at.filter(|at| *at > now).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn postponed_report_is_waited_for() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let after = |seconds: i64| Some(now + SignedDuration::from_secs(seconds));
        // Nothing else changes before the report is stored.
        assert_eq!(requeue_at(after(0), after(30), now), after(30));
        assert_eq!(requeue_at(after(-1), after(30), now), after(30));
        // The boundary of a window or a deadline does not wait for it.
        assert_eq!(requeue_at(after(10), after(30), now), after(10));
        assert_eq!(requeue_at(None, after(30), now), after(30));
        assert_eq!(requeue_at(after(0), None, now), after(0));
        assert_eq!(requeue_at(None, None, now), None);
    }
}
