//! The decision: one pure function that never fails and never waits.

mod agent_rollout;
mod desired_status;
mod goal;
mod keep;
mod node_taints;
mod reclaim;
mod reclaim_request;
mod removal;
mod run;

use crate::input::DecisionInput;
use crate::machine_failure;
use crate::plan::{Decision, DesiredStatus, Plan, Step};

use goal::Goal;

/// Decides what one reconcile does, or what it has to read first. Each read is requested at most once: its result is in the
/// input of the next call.
pub fn decide(input: &DecisionInput<'_>) -> Decision {
    let plan = match Goal::of(input) {
        Goal::Remove(removal) => removal::plan(input, removal),
        Goal::Keep => keep::plan(input),
        Goal::Run => run::plan(input),
        Goal::LeaveAlone(errors) => keep::leave_alone(input, errors),
    };
    match plan {
        Ok(plan) => {
            // The status changes at the boundary, whatever else the plan waits for.
            let wake_at = plan.wake_at.into_iter().chain(input.next_boundary()).min();
            let mut steps = plan.steps;
            // A reclaim in progress has its own order for these.
            if !reclaim_request::in_progress(input) {
                match agent_rollout::plan(input, &steps) {
                    // The rollout clears a request of an earlier Machine in the same write.
                    Some(step @ Step::RollOutAgent { .. }) if !reclaim_request::is_rolled_out(input) => {
                        steps.push(step);
                    }
                    step => steps.extend(step.into_iter().chain(reclaim::clear_request(input))),
                }
            }
            Decision::Execute(Box::new(Plan { steps, wake_at, ..plan }))
        }
        Err(read) => Decision::NeedsRead(read),
    }
}

/// The status of a reconcile that failed before a decision was made.
pub fn undecided(input: &DecisionInput<'_>) -> DesiredStatus {
    DesiredStatus {
        references: desired_status::references(input),
        machine_failure: machine_failure::stored(input),
        ..DesiredStatus::undecided()
    }
}
