//! Mutations of `decide`: deliberate bugs that show that the model check would find them.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use fivespot_planner::observed::{Absence, Child, Cluster, MachineHealth, Node, Observed};
use fivespot_planner::plan::{Action, DesiredStatus, Plan, Role, Step};

use super::observe::View;
use super::state::{Connection, MachineState};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// Stores nothing but the finalizer before it acts.
    SkipStore,
    /// Adds the finalizer without the intent.
    SkipIntent,
    /// Treats an intent as stored refs although the status that includes it has none any more.
    HonourObservedIntent,
    /// Records the intent while what an earlier machine has stored still counts.
    SkipClearBeforeIntent,
    SkipStoreOfShutdown,
    SkipStoreOfReclaim,
    /// Leaves a Node cordoned and a Machine annotated when a shutdown is cancelled.
    SkipCancellation,
    /// Does not disable the schedule after a reclaim.
    SkipDisableSchedule,
    /// Removes the finalizer while children exist.
    RemoveFinalizerEarly,
    KeepFinalizer,
    /// Writes what is stored already.
    WriteAtRest,
    RemoveWhileDisabled,
    /// Deletes the Machine instead of evicting its pods.
    SkipDrain,
    DeleteUnmanagedMachine,
    DeleteUnmanagedBootstrap,
    /// Deletes the bootstrap object of a Machine that exists.
    DeleteBootstrapFirst,
    /// Creates a Machine with provider objects of an earlier one.
    ReuseLeftovers,
    RemoveInvalid,
    /// Creates a Machine without a usable Cluster, and without backoff.
    CreateUnusable,
    IgnorePause,
    /// Treats an unreachable workload cluster as one without the Node.
    TreatUnreachableAsAbsent,
    /// Treats a Node that cannot be identified as one that does not exist.
    TreatUnidentifiedAsAbsent,
    /// Does not time out while the workload cluster is unreachable.
    WaitForUnreachable,
    KeepFailedMachine,
    /// Obeys a reclaim request that was on the Node before the agent was rolled out.
    ObeyOldRequest,
    /// Tries to create a child whose name is taken, again and again.
    IgnoreNameConflict,
    /// Never requests to be woken.
    SkipWake,
    /// Leaves the start of a shutdown in the future.
    KeepFutureStart,
    /// Executes a plan from the caches of an instance that took over, without reading the object first.
    SkipReread,
}

impl Mutation {
    /// Changes a plan.
    pub(super) fn mutate(self, view: &View, plan: &mut Plan) {
        let machine = view.caches.machine;
        let delete = |it: &MachineState| Step::Run(Action::DeleteMachine { uid: it.uid.to_string() });
        let delete_bootstrap = || {
            let uid = view.servers.bootstrap.map(|it| it.uid().to_owned());
            uid.map(|uid| Step::Run(Action::DeleteProviderObject { role: Role::Bootstrap, uid }))
        };
        match self {
            Mutation::SkipStore => {
                skip_store(plan, |_| true);
                skip_intent(view, plan);
            }
            Mutation::SkipIntent => skip_intent(view, plan),
            Mutation::SkipClearBeforeIntent => skip_store(plan, |it| it.phase == Phase::Pending),
            Mutation::SkipStoreOfShutdown => {
                skip_store(plan, |it| it.phase != Phase::Pending && it.phase != Phase::EmergencyRemove);
            }
            Mutation::SkipStoreOfReclaim => skip_store(plan, |it| it.phase == Phase::EmergencyRemove),
            Mutation::SkipCancellation => {
                skip(plan, |it| matches!(it, Step::Run(Action::Uncordon | Action::ClearExclusions)));
            }
            // The schedule stays enabled, and such a `decide` would act on it immediately.
            Mutation::SkipDisableSchedule if plan.steps.contains(&Step::DisableSchedule) => {
                skip(plan, |it| matches!(it, Step::DisableSchedule));
                plan.wake_at = Some(view.now.timestamp());
            }
            Mutation::KeepFinalizer => skip(plan, |it| matches!(it, Step::RemoveFinalizer)),
            Mutation::RemoveFinalizerEarly => replace(plan, is_provider_delete, &Step::RemoveFinalizer),
            Mutation::ReuseLeftovers if view.wants_machine() => {
                replace(plan, is_provider_delete, &Step::CreateChildren);
            }
            Mutation::WriteAtRest if plan.status.phase == Phase::Active => {
                plan.steps.push(Step::Run(Action::ClearExclusions));
            }
            Mutation::RemoveWhileDisabled if plan.status.phase == Phase::Disabled => {
                plan.steps.extend(machine.iter().map(delete));
            }
            Mutation::SkipDrain => {
                if let Some(machine) = machine {
                    replace(plan, |it| matches!(it, Step::EvictPods(_)), &delete(&machine));
                }
            }
            Mutation::DeleteUnmanagedMachine => {
                plan.steps.extend(machine.iter().filter(|it| !it.is_managed()).map(delete));
            }
            Mutation::DeleteUnmanagedBootstrap if plan.status.phase == Phase::Error => {
                let unmanaged = view.servers.bootstrap.is_some_and(|it| !view.servers.is_managed(it));
                plan.steps.extend(delete_bootstrap().filter(|_| unmanaged));
            }
            Mutation::DeleteBootstrapFirst if plan.steps.iter().any(|it| matches!(it, Step::EvictPods(_))) => {
                plan.steps.extend(delete_bootstrap());
            }
            Mutation::RemoveInvalid if plan.status.ready == Ready::InvalidSpec => {
                plan.steps.extend(machine.iter().map(delete));
            }
            Mutation::WaitForUnreachable if view.servers.connection == Connection::Unreachable => {
                skip(plan, |it| matches!(it, Step::Run(Action::DeleteMachine { .. })));
            }
            Mutation::SkipWake => plan.wake_at = None,
            Mutation::KeepFutureStart => {
                let started = view.caches.object.and_then(|it| it.shutdown_started_at);
                if let Some(started) = started.filter(|it| *it > view.now) {
                    skip_store(plan, |_| true);
                    plan.status.shutdown_started_at = Some(started.timestamp());
                }
            }
            _ => {}
        }
    }

    /// Changes an observation: a `decide` that ignores something acts as if it had observed it differently.
    pub(super) fn distort(self, observed: &mut Observed) {
        let exists = observed.machine.managed().is_some();
        match (self, &mut observed.machine) {
            (Mutation::CreateUnusable, _) if !exists => {
                (observed.cluster, observed.stored.machine_failure) = (Cluster::Present, None);
            }
            (Mutation::IgnorePause, _) if exists => observed.cluster = Cluster::Present,
            (Mutation::TreatUnreachableAsAbsent, _) if matches!(observed.node, Node::Unreachable(_)) => {
                observed.node = Node::Absent(Absence::NotJoined);
            }
            (Mutation::TreatUnidentifiedAsAbsent, _) => {
                if let Node::Unidentified(absence) = &observed.node {
                    observed.node = Node::Absent(absence.clone());
                }
            }
            (Mutation::ObeyOldRequest, Child::Managed(machine)) => {
                if let Node::Managed(node) = &mut observed.node {
                    node.agent.machine_uid = Some(machine.uid.clone());
                }
            }
            (Mutation::KeepFailedMachine, Child::Managed(machine)) => machine.health = MachineHealth::Running,
            (Mutation::IgnoreNameConflict, Child::Absent) => {
                for child in [&mut observed.bootstrap, &mut observed.infrastructure] {
                    if matches!(child, Child::Unmanaged(_)) {
                        *child = Child::Absent;
                    }
                }
            }
            _ => {}
        }
    }
}

/// The finalizer is added nevertheless.
fn skip_intent(view: &View, plan: &mut Plan) {
    let is_intent = |step: &Step| matches!(step, Step::RecordIntent(_));
    if view.caches.object.is_some_and(|it| it.finalizer) {
        skip(plan, is_intent);
    } else {
        replace(plan, is_intent, &Step::AddFinalizer);
    }
}

fn is_provider_delete(step: &Step) -> bool {
    matches!(step, Step::Run(Action::DeleteProviderObject { .. }))
}

fn skip(plan: &mut Plan, skipped: fn(&Step) -> bool) {
    plan.steps.retain(|step| !skipped(step));
}

fn skip_store(plan: &mut Plan, skipped: fn(&DesiredStatus) -> bool) {
    plan.steps.retain(|step| !matches!(step, Step::StoreStatus(status) if skipped(status)));
}

fn replace(plan: &mut Plan, replaced: fn(&Step) -> bool, with: &Step) {
    for step in plan.steps.iter_mut().filter(|step| replaced(step)) {
        step.clone_from(with);
    }
}
