//! Everything that belongs to one reconcile of one object.

use std::sync::Arc;

use fivespot_api::ScheduledMachine;
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::observed::Observed;
use fivespot_planner::plan::Step;
use fivespot_planner::status::Outcome;
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::Timestamp;

use super::context::Context;
use super::error::ReconcileError;
use super::observe;
use crate::runtime::workqueue::Key;

/// One reconcile of one object: what was read, what is decided from, and what has been done so far.
pub(crate) struct Scope<'a> {
    pub(crate) context: &'a Context,
    pub(crate) key: &'a Key,
    /// The object that the decision is made from, or the result of the last write to it in this reconcile. Every write to it
    /// carries its `resourceVersion`, so a concurrent edit wins.
    pub(crate) object: ScheduledMachine,
    pub(crate) requested: RequestedState,
    pub(crate) spec: Result<ValidSpec, SpecErrors>,
    pub(crate) observed: Observed,
    /// The only time that a reconcile knows.
    pub(crate) now: Timestamp,
    pub(crate) outcome: Outcome,
    /// The finalizer was removed, so the object no longer exists.
    pub(crate) finalizer_removed: bool,
    /// Every step was attempted: only best-effort steps can have failed.
    pub(crate) all_steps_attempted: bool,
    pub(crate) best_effort_failures: Vec<BestEffortFailure>,
}

/// A step that failed and that no other step depends on.
pub(crate) struct BestEffortFailure {
    pub(crate) step: Step,
    pub(crate) error: ReconcileError,
}

impl<'a> Scope<'a> {
    /// Validates the spec and observes the caches. Sends no request.
    pub(crate) fn new(context: &'a Context, key: &'a Key, object: &Arc<ScheduledMachine>, now: Timestamp) -> Self {
        let spec = validate(&object.spec, &key.namespace, Standard::Stored);
        let observed = observe::from_caches(context, key, object, spec.as_ref().ok());
        Scope {
            context,
            key,
            object: ScheduledMachine::clone(object),
            requested: RequestedState::of(object),
            spec,
            observed,
            now,
            outcome: Outcome::default(),
            finalizer_removed: false,
            all_steps_attempted: false,
            best_effort_failures: Vec::new(),
        }
    }

    pub(crate) fn input(&self) -> DecisionInput<'_> {
        DecisionInput { requested: &self.requested, spec: self.spec.as_ref(), observed: &self.observed, now: self.now }
    }

    /// Whether the plan was executed except for best-effort steps.
    pub(crate) fn only_best_effort_failed(&self) -> bool {
        self.all_steps_attempted && !self.best_effort_failures.is_empty()
    }
}
