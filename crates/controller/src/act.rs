//! Every act of a plan, in order: the first that fails ends the pass, unless nothing else waits for it.

mod agent;
mod children;
mod machine;
mod node;
mod object;
mod pods;
mod side_by_side;

use fivespot_api::ScheduledMachine;
use fivespot_planner::plan::Action;
use fivespot_planner::status::Done;
use futures::FutureExt as _;

use self::side_by_side::side_by_side;
use crate::context::Context;
use crate::queue::Key;
use crate::reconcile::Scene;
use crate::trouble::{MANAGEMENT, Trouble, within};

/// One pass that acts.
pub(crate) struct Pass<'a> {
    pub(crate) context: &'a Context,
    pub(crate) key: &'a Key,
    pub(crate) scene: &'a Scene,
    /// The object as it was decided from, or as this pass wrote it: every write of it names this version.
    pub(crate) object: ScheduledMachine,
    /// What came of it so far.
    pub(crate) done: Done,
    /// Whether the object is gone.
    pub(crate) let_go: bool,
    /// Whether every act was tried: nothing but these is undone.
    pub(crate) went_through: bool,
    /// Acts that failed, and that nothing else waits for.
    pub(crate) undone: Vec<Undone>,
}

/// An act that failed, and that nothing else waits for.
pub(crate) struct Undone {
    pub(crate) act: Action,
    pub(crate) trouble: Trouble,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(context: &'a Context, key: &'a Key, object: &ScheduledMachine, scene: &'a Scene) -> Self {
        Pass {
            context,
            key,
            scene,
            object: object.clone(),
            done: Done::default(),
            let_go: false,
            went_through: false,
            undone: Vec::new(),
        }
    }

    /// Leaves an act undone that failed, and goes on. What has to be looked at anew ends the pass all the same.
    fn set_aside(&mut self, act: &Action, outcome: Result<(), Trouble>) -> Result<(), Trouble> {
        match outcome {
            Err(trouble @ (Trouble::Hiccup(_) | Trouble::Refused { .. })) => {
                self.undone.push(Undone { act: act.clone(), trouble });
                Ok(())
            }
            Ok(()) | Err(Trouble::Stale(_) | Trouble::Stopping) => outcome,
        }
    }

    /// Sends a write to the management cluster, when it is its turn and unless the process is to end.
    pub(crate) async fn write<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Trouble> {
        let _turn = self.context.writes.acquire().await.map_err(|_| Trouble::Stopping)?;
        if self.context.stopping.is_cancelled() {
            return Err(Trouble::Stopping);
        }
        within(MANAGEMENT, what, request).await
    }
}

/// Carries out acts, one after the other. Taints and the reclaim agent of a Node are nothing that the others wait for.
pub(crate) async fn act(pass: &mut Pass<'_>, actions: &[Action]) -> Result<(), Trouble> {
    for action in actions {
        match action {
            Action::AddFinalizer => pass.add_finalizer().await?,
            Action::RemoveFinalizer => pass.remove_finalizer().await?,
            Action::Store(standing) => pass.store(standing).await?,
            Action::DisableSchedule => pass.disable_schedule().await?,
            Action::CreateChildren => pass.create_children().await?,
            Action::Evict(pods) => pass.evict(pods).await?,
            Action::Taint { wanted, told } => {
                let outcome = pass.taint(wanted, told).await;
                pass.set_aside(action, outcome)?;
            }
            Action::Project { orders } => {
                let outcome = pass.project(orders).await;
                pass.set_aside(action, outcome)?;
            }
            Action::Together(lists) => together(pass, lists).await?,
            Action::Mark(_)
            | Action::Unmark
            | Action::DeleteMachine { .. }
            | Action::DeleteProvider { .. }
            | Action::Cordon
            | Action::Uncordon
            | Action::EndPods(_)
            | Action::EndAllPods
            | Action::Unproject
            | Action::ClearRequest => apart(pass, action).await?,
        }
    }
    pass.went_through = true;
    Ok(())
}

/// Carries out lists side by side. All of them are seen through; what went wrong first is the answer.
async fn together(pass: &Pass<'_>, lists: &[Vec<Action>]) -> Result<(), Trouble> {
    let lists = lists.iter().map(|list| {
        let in_order = async move {
            for action in list {
                apart(pass, action).await?;
            }
            Ok(())
        };
        in_order.boxed()
    });
    side_by_side(lists.collect()).await.into_iter().collect()
}

/// Carries out an act that writes neither the object nor its children's being there, so that it can be done beside others.
async fn apart(pass: &Pass<'_>, action: &Action) -> Result<(), Trouble> {
    match action {
        Action::Mark(marks) => pass.mark(*marks).await,
        Action::Unmark => pass.unmark().await,
        Action::DeleteMachine { uid } => pass.delete_machine(uid).await,
        Action::DeleteProvider { role, uid } => pass.delete_provider(*role, uid).await,
        Action::Cordon => pass.cordon().await,
        Action::Uncordon => pass.uncordon().await,
        Action::EndPods(pods) => pass.end_pods(pods).await,
        Action::EndAllPods => pass.end_all_pods().await,
        Action::Unproject => pass.unproject().await,
        Action::ClearRequest => pass.clear_request().await,
        Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::Store(_)
        | Action::DisableSchedule
        | Action::CreateChildren
        | Action::Evict(_)
        | Action::Taint { .. }
        | Action::Project { .. }
        | Action::Together(_) => unreachable!("a decision puts none of these beside others"),
    }
}
