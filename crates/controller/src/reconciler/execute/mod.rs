//! Every write of a plan except the status, in order. The first failure ends the reconcile, except that of a best-effort step.

mod agent;
mod children;
mod concurrent;
mod machine;
mod node;
mod object;
mod pods;

use fivespot_planner::plan::{Action, ForceRemoval, Step};
use fivespot_planner::status::RejectedPod;
use futures::FutureExt as _;
use tracing::debug;

use super::error::ReconcileError;
use super::status;
use super::{BestEffortFailure, Scope};
use concurrent::concurrently;

/// Executes the steps of a plan.
pub(super) async fn execute(scope: &mut Scope<'_>, steps: &[Step]) -> Result<(), ReconcileError> {
    for step in steps {
        let result = execute_step(scope, step).await;
        match result {
            Err(error) if step.is_best_effort() && is_reportable(&error) => {
                debug!(%error, "Best-effort step failed; continuing");
                scope.best_effort_failures.push(BestEffortFailure { step: step.clone(), error });
            }
            other => other?,
        }
    }
    scope.all_steps_attempted = true;
    Ok(())
}

/// A conflict is resolved by observing again, and a shutdown by the next process.
fn is_reportable(error: &ReconcileError) -> bool {
    use fivespot_planner::retry::FailureClass;
    match error.class() {
        Some(FailureClass::Transient | FailureClass::Throttled | FailureClass::Rejected) => true,
        Some(FailureClass::Conflict) | None => false,
    }
}

async fn execute_step(scope: &mut Scope<'_>, step: &Step) -> Result<(), ReconcileError> {
    match step {
        Step::AddFinalizer => scope.add_finalizer().await,
        Step::RemoveFinalizer => scope.remove_finalizer().await,
        Step::RecordIntent(refs) => scope.record_intent(refs).await,
        Step::StoreStatus(desired) => status::store(scope, desired).await,
        Step::DisableSchedule => scope.disable_schedule().await,
        Step::CreateChildren => scope.create_children().await,
        Step::EvictPods(pods) => {
            let rejected = scope.evict_pods(pods).await?;
            scope.outcome.rejected_pods.extend(rejected);
            Ok(())
        }
        Step::ApplyTaints { desired, applied } => scope.apply_taints(desired, applied).await,
        Step::RollOutAgent { config } => scope.roll_out_agent(config).await,
        Step::ForceRemove(removal) => force_remove(scope, removal).await,
        Step::Run(action) => {
            let rejected = run_action(scope, action).await?;
            scope.outcome.rejected_pods.extend(rejected);
            Ok(())
        }
    }
}

/// Completes all lists. The Machine is what has to be removed: a Node that cannot be cordoned, or pods that cannot be deleted,
/// hold back no further step.
async fn force_remove(scope: &mut Scope<'_>, removal: &ForceRemoval) -> Result<(), ReconcileError> {
    let this = &*scope;
    let parts: Vec<ForceRemoval> = removal.parts().collect();
    let lists = parts.iter().map(|part| {
        let run_in_order = async move {
            let mut rejected = Vec::new();
            for action in part.concurrent_lists().flatten() {
                rejected.extend(run_action(this, action).await?);
            }
            Ok(rejected)
        };
        run_in_order.boxed()
    });
    let results: Vec<Result<Vec<RejectedPod>, ReconcileError>> = concurrently(lists.collect()).await;
    let mut first_error = Ok(());
    for (part, result) in parts.into_iter().zip(results) {
        match result {
            Ok(rejected) => scope.outcome.rejected_pods.extend(rejected),
            Err(error) if part.machine.is_empty() && is_reportable(&error) => {
                debug!(%error, "Part of a force removal failed; continuing");
                scope.best_effort_failures.push(BestEffortFailure { step: Step::ForceRemove(part), error });
            }
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    first_error
}

/// Runs one action and returns the pods that it could not delete.
async fn run_action(scope: &Scope<'_>, action: &Action) -> Result<Vec<RejectedPod>, ReconcileError> {
    let done = match action {
        Action::SetExclusions(exclusions) => scope.set_exclusions(*exclusions).await,
        Action::ClearExclusions => scope.clear_exclusions().await,
        Action::DeleteMachine { uid } => scope.delete_machine(uid).await,
        Action::DeleteProviderObject { role, uid } => scope.delete_provider_object(*role, uid).await,
        Action::Cordon => scope.cordon().await,
        Action::Uncordon => scope.uncordon().await,
        Action::DeletePods(pods) => return scope.delete_pods(pods).await,
        Action::DeleteAllPods => return scope.delete_all_pods().await,
        Action::WithdrawAgent => scope.withdraw_agent().await,
        Action::ClearReclaimRequest => scope.clear_reclaim_request().await,
    };
    done.map(|()| Vec::new())
}
