//! What a `decide` that is wrong would do: planted, to show that it would be found.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use fivespot_planner::observed::{Absence, Child, Cluster, MachineHealth, Node, Observed};
use fivespot_planner::plan::{Action, DesiredStatus, Plan, Role, Step};

use super::state::{MachineState, Reach};
use super::view::View;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mistake {
    /// Acts before it is stored that it will.
    ForgetsToStore,
    /// The same, of the children alone.
    ForgetsToStoreChildren,
    /// The same, of a shutdown alone.
    ForgetsToStoreShutdown,
    /// The same, of a reclaim alone.
    ForgetsToStoreReclaim,
    /// Leaves a machine cordoned and marked that it takes back.
    ForgetsToTakeBack,
    /// Lets a machine come back that its owner wanted.
    ForgetsToDisable,
    /// Lets the object go while children are there.
    LeavesChildrenBehind,
    /// Never lets the object go.
    KeepsTheFinalizer,
    /// Writes what is there already.
    WritesAtRest,
    /// Removes a machine whose schedule is disabled.
    RemovesWhileDisabled,
    /// Deletes a Machine instead of asking its pods to leave.
    SkipsTheDrain,
    /// Deletes a Machine of its name, whosever it is.
    TouchesForeignMachine,
    /// Deletes a bootstrap object of its name, whosever it is.
    TouchesForeignChild,
    /// Makes a machine with what an earlier one left behind.
    ReusesLeftovers,
    /// Removes a machine whose spec does not parse.
    RemovesWhatItCannotRead,
    /// Makes a machine for a Cluster that does not take it, and at once after one failed.
    MakesInVain,
    /// Begins a shutdown although the Cluster is paused.
    IgnoresThePause,
    /// Takes a workload cluster that does not answer for one without the Node.
    TakesSilenceForNoNode,
    /// Waits for a workload cluster longer than a shutdown may take.
    WaitsForTheCluster,
    /// Keeps a machine that failed.
    KeepsTheFailed,
    /// Tries to make a child where a stranger's is, again and again.
    OverlooksStrangers,
}

impl Mistake {
    pub(super) fn plant(self, view: &View, plan: &mut Plan) {
        let machine = view.caches.machine;
        let delete = |it: &MachineState| Step::Run(Action::DeleteMachine { uid: it.uid.to_string() });
        match self {
            Mistake::ForgetsToStore => forget_store(plan, |_| true),
            Mistake::ForgetsToStoreChildren => forget_store(plan, |it| it.phase == Phase::Pending),
            Mistake::ForgetsToStoreShutdown => {
                forget_store(plan, |it| it.phase != Phase::Pending && it.phase != Phase::EmergencyRemove);
            }
            Mistake::ForgetsToStoreReclaim => forget_store(plan, |it| it.phase == Phase::EmergencyRemove),
            Mistake::ForgetsToTakeBack => {
                forget(plan, |it| matches!(it, Step::Run(Action::Uncordon | Action::ClearExclusions)));
            }
            Mistake::ForgetsToDisable => forget(plan, |it| matches!(it, Step::DisableSchedule)),
            Mistake::KeepsTheFinalizer => forget(plan, |it| matches!(it, Step::RemoveFinalizer)),
            Mistake::LeavesChildrenBehind => {
                replace(
                    plan,
                    |it| matches!(it, Step::Run(Action::DeleteProviderObject { .. })),
                    &Step::RemoveFinalizer,
                );
            }
            Mistake::ReusesLeftovers if view.is_wanted() => {
                replace(plan, |it| matches!(it, Step::Run(Action::DeleteProviderObject { .. })), &Step::CreateChildren);
            }
            Mistake::WritesAtRest if plan.status.phase == Phase::Active => {
                plan.steps.push(Step::Run(Action::ClearExclusions));
            }
            Mistake::RemovesWhileDisabled if plan.status.phase == Phase::Disabled => {
                plan.steps.extend(machine.iter().map(delete));
            }
            Mistake::SkipsTheDrain => {
                if let Some(machine) = machine {
                    replace(plan, |it| matches!(it, Step::EvictPods(_)), &delete(&machine));
                }
            }
            Mistake::TouchesForeignMachine => {
                plan.steps.extend(machine.iter().filter(|it| !it.is_ours()).map(delete));
            }
            Mistake::TouchesForeignChild if plan.status.phase == Phase::Error => {
                let uid = view.there.bootstrap.map(|it| it.uid().to_owned());
                plan.steps
                    .extend(uid.map(|uid| Step::Run(Action::DeleteProviderObject { role: Role::Bootstrap, uid })));
            }
            Mistake::RemovesWhatItCannotRead if plan.status.ready == Ready::InvalidSpec => {
                plan.steps.extend(machine.iter().map(delete));
            }
            Mistake::WaitsForTheCluster if view.there.reach == Reach::Unreachable => {
                forget(plan, |it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
            }
            _ => {}
        }
    }

    /// A `decide` that does not look at something is one that sees it otherwise.
    pub(super) fn blind(self, seen: &mut Observed) {
        let is_there = seen.machine.managed().is_some();
        match (self, &mut seen.machine) {
            (Mistake::MakesInVain, _) if !is_there => (seen.cluster, seen.recreate_backoff) = (Cluster::Present, None),
            (Mistake::IgnoresThePause, _) if is_there => seen.cluster = Cluster::Present,
            (Mistake::TakesSilenceForNoNode, _) if matches!(seen.node, Node::Unreachable(_)) => {
                seen.node = Node::Absent(Absence::NotJoined);
            }
            (Mistake::KeepsTheFailed, Child::Managed(machine)) => machine.health = MachineHealth::Running,
            (Mistake::OverlooksStrangers, Child::Absent) => {
                for child in [&mut seen.bootstrap, &mut seen.infrastructure] {
                    if matches!(child, Child::Unmanaged(_)) {
                        *child = Child::Absent;
                    }
                }
            }
            _ => {}
        }
    }
}

fn forget(plan: &mut Plan, what: fn(&Step) -> bool) {
    plan.steps.retain(|it| !what(it));
}

fn forget_store(plan: &mut Plan, what: fn(&DesiredStatus) -> bool) {
    plan.steps.retain(|it| !matches!(it, Step::StoreStatus(standing) if what(standing)));
}

fn replace(plan: &mut Plan, what: fn(&Step) -> bool, with: &Step) {
    for action in plan.steps.iter_mut().filter(|it| what(it)) {
        action.clone_from(with);
    }
}
