//! Writes of the ScheduledMachine. Each carries the version that it is based on; an outdated version is a conflict.

use fivespot_api::{MachineFailure, Phase, ReclaimStatus};
use fivespot_planner::plan::DesiredStatus;

use super::super::fixtures::refs;
use super::super::invariants::Invariant;
use super::super::reconcile::Reconcile;
use super::super::state::{Failure, IntentState, Object, Reclaim, World};
use super::super::time::Seconds;
use super::Response;

impl Object {
    /// The object with this status.
    pub(in super::super) fn with(self, status: &DesiredStatus, child_uids: bool) -> Self {
        let reclaim = |it: &ReclaimStatus| Reclaim {
            machine: it.machine_uid.parse().unwrap(),
            schedule_disabled: it.schedule_disabled,
            in_progress: it.in_progress,
            count: it.count.try_into().unwrap(),
        };
        let failure = |it: &MachineFailure| Failure {
            machine: it.machine_uid.parse().unwrap(),
            count: it.count.try_into().unwrap(),
            retry_at: Seconds::from_timestamp(it.retry_at.0),
        };
        assert!(status.refs.as_ref().is_none_or(|it| *it == refs()), "{:?}", status.refs);
        Object {
            intent: self.intent.observed(),
            phase: Some(status.phase),
            refs: status.refs.is_some(),
            child_uids: status.refs.is_some() && child_uids,
            shutdown_started_at: status.shutdown_started_at.map(Seconds::from_timestamp),
            failure: status.machine_failure.as_ref().map(failure),
            reclaim: status.reclaim.as_ref().map(reclaim),
            ..self
        }
    }
}

impl World {
    fn write(&mut self, reconcile: &Reconcile, edit: impl FnOnce(&mut Object)) -> Response {
        match &mut self.object {
            Some(object) if Some(*object) == reconcile.known => {
                let before = *object;
                edit(object);
                Response::of_change(*object != before)
            }
            Some(_) | None => Response::Conflict,
        }
    }

    pub(super) fn write_status(&mut self, reconcile: &Reconcile, status: &DesiredStatus, child_uids: bool) -> Response {
        let in_progress = |world: &World| world.object.is_some_and(|it| it.reclaim_in_progress());
        let before = in_progress(self);
        let response = self.write(reconcile, |object| *object = object.with(status, child_uids));
        if !before && in_progress(self) {
            self.enabled_since_reclaim = false;
            if !reconcile.view.agent_was_rolled_out() {
                self.violate(Invariant::OldReclaimRequestIsNotObeyed);
            }
        }
        response
    }

    /// What is stored stays, and a reclaim in progress continues whatever fails meanwhile.
    pub(super) fn write_failure(&mut self, reconcile: &Reconcile) -> Response {
        self.write(reconcile, |object| {
            let phase = if object.reclaim_in_progress() { Phase::EmergencyRemove } else { Phase::Error };
            object.phase = Some(phase);
            (object.refs, object.intent) = (object.has_refs(), object.intent.observed());
        })
    }

    /// The API server rejects a new finalizer on an object that is being deleted.
    pub(super) fn add_finalizer(&mut self, reconcile: &Reconcile) -> Response {
        if self.object.is_some_and(|it| it.requested.deleted) {
            return Response::Conflict;
        }
        self.write(reconcile, |object| object.finalizer = true)
    }

    pub(super) fn record_intent(&mut self, reconcile: &Reconcile) -> Response {
        if self.object.is_some_and(|it| it.requested.deleted && !it.finalizer) {
            return Response::Conflict;
        }
        self.write(reconcile, |object| (object.finalizer, object.intent) = (true, IntentState::Unobserved))
    }

    pub(super) fn remove_finalizer(&mut self, reconcile: &Reconcile) -> Response {
        let response = self.write(reconcile, |object| object.finalizer = false);
        let deleted = self.object.is_some_and(|it| it.requested.deleted);
        if response == Response::Done && !(deleted && self.servers.nothing_managed()) {
            self.violate(Invariant::NothingIsLeftBehind);
        }
        self.object = self.object.filter(|it| it.finalizer || !it.requested.deleted);
        response
    }

    pub(super) fn disable_schedule(&mut self, reconcile: &Reconcile) -> Response {
        self.write(reconcile, |object| object.requested.enabled = false)
    }
}
