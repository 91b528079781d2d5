//! What must never happen, checked when a request arrives.

use fivespot_planner::observed::Cluster;

use super::reconcile::Reconcile;
use super::request::{NodeRequest, Request};
use super::state::{MachineState, Owner, ProviderState, World};
use super::time::DRAIN_TIMEOUT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Invariant {
    RefsAreStoredBeforeCreation,
    ShutdownIsStoredBeforeRemoval,
    ReclaimIsStoredBeforeRemoval,
    OldReclaimRequestIsNotObeyed,
    DisabledOrInvalidIsLeftAlone,
    NodeIsDrainedBeforeDeletion,
    UnmanagedObjectIsNotTouched,
    ReclaimedMachineStaysAway,
    NothingIsLeftBehind,
    MachineIsDeletedFirst,
    MachineGetsNewChildren,
    MachineIsCreatedOnlyIfUsable,
    PausedClusterIsLeftAlone,
}

impl Invariant {
    pub(crate) fn description(self) -> &'static str {
        match self {
            Invariant::RefsAreStoredBeforeCreation => "refs and finalizer are stored before a child is created",
            Invariant::ShutdownIsStoredBeforeRemoval => "the start of a shutdown is stored before its first request",
            Invariant::ReclaimIsStoredBeforeRemoval => "a reclaim is stored before its first request",
            Invariant::OldReclaimRequestIsNotObeyed => {
                "a reclaim request from before the rollout of the agent is not obeyed"
            }
            Invariant::DisabledOrInvalidIsLeftAlone => {
                "a machine with a disabled schedule or invalid spec is left alone"
            }
            Invariant::NodeIsDrainedBeforeDeletion => "a Machine is deleted only if drained or timed out",
            Invariant::UnmanagedObjectIsNotTouched => "an unmanaged object is not touched",
            Invariant::ReclaimedMachineStaysAway => {
                "no machine is created after a reclaim until a user enables the schedule"
            }
            Invariant::NothingIsLeftBehind => "the finalizer is removed only if no child is left",
            Invariant::MachineIsDeletedFirst => "provider objects are deleted only if no Machine exists",
            Invariant::MachineGetsNewChildren => "a Machine is created only with new provider objects",
            Invariant::MachineIsCreatedOnlyIfUsable => {
                "no Machine is created without a usable Cluster or during backoff"
            }
            Invariant::PausedClusterIsLeftAlone => "no machine of a paused Cluster is shut down",
        }
    }
}

/// Whether a request takes something from a machine or from its users.
fn is_removal(request: &Request) -> bool {
    matches!(
        request,
        Request::DeleteMachine { .. }
            | Request::Node(NodeRequest::Cordon | NodeRequest::EvictPods | NodeRequest::DeletePods)
    )
}

impl World {
    /// Only the first violation counts.
    pub(super) fn violate(&mut self, invariant: Invariant) {
        self.violated = self.violated.or(Some(invariant));
    }

    /// A removal has a reason in what the reconcile observed, and the reason is stored.
    pub(super) fn check_removal(&mut self, reconcile: &Reconcile, request: &Request) {
        let view = &reconcile.view;
        let (Some(observed), Some(object)) = (view.caches.object, self.object) else { return };
        let requested = observed.requested;
        if !is_removal(request) || self.is_delete_of_other_machine(request) || requested.kill_switch {
            return;
        }
        if view.observed_reclaim() {
            if !object.reclaim_in_progress() {
                self.violate(Invariant::ReclaimIsStoredBeforeRemoval);
            }
            return;
        }
        let left_alone = !requested.enabled || !requested.valid;
        if left_alone && !requested.deleted {
            self.violate(Invariant::DisabledOrInvalidIsLeftAlone);
        }
        if view.servers.cluster == Cluster::Paused {
            self.violate(Invariant::PausedClusterIsLeftAlone);
        }
        if object.shutdown_started_at.is_none() {
            self.violate(Invariant::ShutdownIsStoredBeforeRemoval);
        }
        if matches!(request, Request::DeleteMachine { .. }) && self.is_undrained(reconcile) {
            self.violate(Invariant::NodeIsDrainedBeforeDeletion);
        }
    }

    /// Such a delete has no effect, or violates another invariant.
    fn is_delete_of_other_machine(&self, request: &Request) -> bool {
        let is_managed = |uid: u8| self.servers.managed_machine().is_some_and(|it| it.uid == uid);
        matches!(request, Request::DeleteMachine { uid } if !is_managed(*uid))
    }

    /// Whether a pod is left on the Node before the drain has timed out.
    fn is_undrained(&self, reconcile: &Reconcile) -> bool {
        let view = &reconcile.view;
        let joined = view.servers.machine.is_some_and(|it| it.joined) && self.servers.node.is_some();
        let started = self.object.and_then(|it| it.shutdown_started_at);
        let in_time = started.is_some_and(|at| view.now < at + DRAIN_TIMEOUT);
        joined && in_time && self.servers.pod.is_some()
    }

    /// A request changes or deletes this Machine, its Node or a pod on it. A Machine keeps its uid when it is taken over,
    /// so the API server cannot reject a request that is based on an older observation.
    pub(super) fn check_machine_is_managed(&mut self, reconcile: &Reconcile, machine: MachineState) {
        let outdated = machine.owner == Owner::TakenOver && reconcile.view.observed_as_managed(machine.uid);
        if !machine.is_managed() && !outdated {
            self.violate(Invariant::UnmanagedObjectIsNotTouched);
        }
    }

    /// A request deletes a provider object that was observed like this.
    pub(super) fn check_provider_is_managed(&mut self, reconcile: &Reconcile, observed: Option<ProviderState>) {
        if !observed.is_some_and(|it| reconcile.view.servers.is_managed(it)) {
            self.violate(Invariant::UnmanagedObjectIsNotTouched);
        }
    }
}
