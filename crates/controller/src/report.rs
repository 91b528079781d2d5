//! Telling what came of a pass: the status, once and only if it changed; events and a log line for each transition.

use std::time::Duration;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_planner::decide::unknown;
use fivespot_planner::event::{Event, Reason, transitions};
use fivespot_planner::observed::Pods;
use fivespot_planner::plan::{Action, Plan, Standing};
use fivespot_planner::status::{Doing, Failure, Subject, fold, merge_patch};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::act::{Pass, Undone};
use crate::trouble::Trouble;

impl Pass<'_> {
    /// The plan has been carried out, but for what nothing else waits for: that is told when there is no hope that it comes
    /// right by itself.
    pub(crate) async fn report(&mut self, plan: &Plan) -> Result<(), Trouble> {
        // What has been done is told whatever becomes of the status.
        plan.events.iter().filter(|it| is_of_an_act(it)).for_each(|it| self.tell(it));
        self.count_drain(plan);
        if let Some(undone) = self.undone.first() {
            return Err(undone.trouble.clone());
        }
        if !self.let_go {
            self.store(&plan.standing).await?;
        } else if self.object.status.as_ref().is_some_and(|it| it.phase == Some(Phase::EmergencyRemove)) {
            self.context.metrics.reclaimed("finished");
        }
        self.tell_what_is_stored(plan);
        Ok(())
    }

    /// What is news only once it is stored.
    fn tell_what_is_stored(&self, plan: &Plan) {
        plan.events.iter().filter(|it| !is_of_an_act(it)).for_each(|it| self.tell(it));
    }

    /// The plan was not carried out, or not even made.
    pub(crate) async fn report_failure(&mut self, plan: Option<&Plan>, trouble: &Trouble) {
        for Undone { act, trouble } in &self.undone {
            let why = Some(trouble.to_string());
            if matches!(act, Action::Project { .. }) {
                self.done.unprojected = why;
            } else {
                self.done.untainted = why;
            }
            tracing::warn!(object = %self.key, why = %trouble, "left undone");
        }
        if !self.is_only_undone() {
            let references = match trouble {
                Trouble::Refused { references, .. } => *references,
                Trouble::Stale(_) | Trouble::Hiccup(_) | Trouble::Stopping => None,
            };
            let doing = plan.map_or(Doing::Keeping, |it| doing(&it.actions));
            self.done.failure = Some(Failure { doing, why: trouble.to_string(), references });
            tracing::warn!(object = %self.key, why = %trouble, "failed");
        }
        let standing = plan.map_or_else(|| unknown(&self.scene.situation()), |it| it.standing.clone());
        match self.store(&standing).await {
            Ok(()) => plan.filter(|_| self.is_only_undone()).into_iter().for_each(|it| self.tell_what_is_stored(it)),
            Err(error) => tracing::warn!(object = %self.key, why = %error, "the failure could not be reported"),
        }
    }

    /// Whether all was done but what nothing else waits for.
    pub(crate) fn is_only_undone(&self) -> bool {
        self.went_through && !self.undone.is_empty()
    }

    /// Writes the status that a standing means, unless it says so already.
    pub(crate) async fn store(&mut self, standing: &Standing) -> Result<(), Trouble> {
        let before = self.object.status.clone().unwrap_or_default();
        let subject = Subject {
            name: &self.key.name,
            namespace: &self.key.namespace,
            generation: self.object.metadata.generation,
            machine_version: self.context.served.version,
            before: &before,
        };
        let after = fold(subject, &self.scene.situation(), standing, &self.done);
        let Some(patch) = merge_patch(&value(&before), &value(&after)) else { return Ok(()) };
        self.patch_status(patch).await?;
        self.announce(&before, &after);
        Ok(())
    }

    fn announce(&self, before: &ScheduledMachineStatus, after: &ScheduledMachineStatus) {
        for event in transitions(before, after, &self.done) {
            match event.reason {
                Reason::KillSwitchActivated => self.context.metrics.kill_switch_activated(),
                Reason::EmergencyReclaim => {
                    self.context.metrics.reclaimed("begun");
                    if was_reclaimed_lately(before, self.scene.now) {
                        self.context.metrics.reclaimed("again");
                    }
                }
                _ => {}
            }
            self.tell(&event);
        }
        if before.phase == Some(Phase::EmergencyRemove) && after.phase == Some(Phase::Disabled) {
            self.context.metrics.reclaimed("finished");
        }
        if let Some(late) = lateness(before, after, self.scene.now) {
            self.context.metrics.acted_on_boundary(late);
        }
        if before.phase != after.phase {
            let phase = |it: &ScheduledMachineStatus| it.phase.map_or("", Phase::as_str);
            let cause = after.message.as_deref().unwrap_or_default();
            tracing::info!(object = %self.key, from = phase(before), phase = phase(after), cause, "transition");
        }
    }

    fn tell(&self, event: &Event) {
        self.context.announcer.tell(&self.object, event, self.scene.now);
    }

    fn count_drain(&self, plan: &Plan) {
        let deleted = plan.actions.iter().any(|it| matches!(it, Action::DeleteMachine { .. }));
        let timed_out = plan.events.iter().any(|it| it.reason == Reason::DrainTimedOut);
        match &self.scene.seen.pods {
            _ if !deleted => {}
            _ if timed_out => self.context.metrics.drained("timed_out"),
            Pods::Read { .. } => self.context.metrics.drained("drained"),
            Pods::NotRead => {}
        }
    }
}

/// Whether an event tells of something that has been done.
fn is_of_an_act(event: &Event) -> bool {
    event.reason == Reason::DrainTimedOut
}

/// What the acts of a plan are for.
fn doing(actions: &[Action]) -> Doing {
    let makes = |it: &Action| matches!(it, Action::AddFinalizer | Action::CreateChildren);
    let keeps = |it: &Action| matches!(it, Action::Uncordon | Action::Unmark | Action::Taint { .. } | Action::Store(_));
    if actions.iter().any(makes) {
        Doing::Creating
    } else if actions.iter().all(keeps) {
        Doing::Keeping
    } else {
        Doing::Removing
    }
}

/// Whether a machine was given back already within the last hour: somebody lends it out again while its owner uses it.
fn was_reclaimed_lately(before: &ScheduledMachineStatus, now: Timestamp) -> bool {
    let last = before.reclaim.as_ref().and_then(|it| it.requested_at.as_ref());
    last.is_some_and(|it| now.duration_since(it.0) < SignedDuration::from_hours(1))
}

/// How long after the boundary of a window it was acted on, if it was now.
fn lateness(before: &ScheduledMachineStatus, after: &ScheduledMachineStatus, now: Timestamp) -> Option<Duration> {
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
