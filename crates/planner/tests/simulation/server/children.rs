//! Children of the ScheduledMachine. Deletes and annotations carry a uid; creates tolerate an existing object.

use fivespot_planner::observed::{Cluster, Exclusions};
use fivespot_planner::plan::Role;

use super::super::invariants::Invariant;
use super::super::reconcile::Reconcile;
use super::super::state::{Failure, MachineState, Owner, ProviderState, Servers, World};
use super::super::time::MAX_BACKOFF;
use super::Response;

impl Servers {
    fn provider(&mut self, role: Role) -> &mut Option<ProviderState> {
        match role {
            Role::Bootstrap => &mut self.bootstrap,
            Role::Infrastructure => &mut self.infrastructure,
        }
    }
}

impl World {
    fn check_refs_are_stored(&mut self) {
        if !self.object.is_some_and(|it| it.finalizer && it.has_refs()) {
            self.violate(Invariant::RefsAreStoredBeforeCreation);
        }
    }

    pub(super) fn create_provider_object(&mut self, role: Role) -> Response {
        self.check_refs_are_stored();
        let child = self.servers.provider(role);
        match child {
            None => {
                *child = Some(ProviderState::new(Owner::ScheduledMachine));
                Response::Done
            }
            Some(child) if child.owner != Owner::ScheduledMachine => Response::NameTaken,
            Some(child) if child.deleting => Response::Conflict,
            // Created before, by a reconcile that crashed or whose response was lost.
            Some(_) => Response::Done,
        }
    }

    pub(super) fn create_machine(&mut self, reconcile: &Reconcile) -> Response {
        self.check_refs_are_stored();
        match self.servers.machine {
            None => {
                if !self.enabled_since_reclaim {
                    self.violate(Invariant::ReclaimedMachineStaysAway);
                }
                let view = &reconcile.view;
                // A time that is further away than any backoff counts as now.
                let waiting = |it: Failure| view.now < it.retry_at && it.retry_at <= view.now + MAX_BACKOFF;
                let backing_off = view.caches.object.and_then(|it| it.failure).is_some_and(waiting);
                if view.servers.cluster != Cluster::Present || backing_off {
                    self.violate(Invariant::MachineIsCreatedOnlyIfUsable);
                }
                let new = ProviderState::new(Owner::ScheduledMachine);
                if self.servers.providers() != [Some(new); 2] {
                    self.violate(Invariant::MachineGetsNewChildren);
                }
                self.created += 1;
                self.servers.machine = Some(MachineState::new(self.created, Owner::ScheduledMachine));
                Response::Done
            }
            Some(machine) if !machine.is_managed() => Response::NameTaken,
            Some(machine) if machine.deleting => Response::Conflict,
            Some(_) => Response::Done,
        }
    }

    pub(super) fn annotate_machine(
        &mut self,
        reconcile: &Reconcile,
        uid: u8,
        exclusions: Option<Exclusions>,
    ) -> Response {
        self.change_machine(reconcile, uid, |machine| {
            machine.exclusions = exclusions.map_or(Exclusions::default(), |added| Exclusions {
                node_drain: machine.exclusions.node_drain || added.node_drain,
                volume_detach: machine.exclusions.volume_detach || added.volume_detach,
            });
        })
    }

    pub(super) fn delete_machine(&mut self, reconcile: &Reconcile, uid: u8) -> Response {
        self.change_machine(reconcile, uid, |machine| machine.deleting = true)
    }

    fn change_machine(&mut self, reconcile: &Reconcile, uid: u8, change: impl FnOnce(&mut MachineState)) -> Response {
        match self.servers.machine {
            None => Response::Unchanged,
            Some(machine) if machine.uid != uid => Response::Conflict,
            Some(machine) => {
                self.check_machine_is_managed(reconcile, machine);
                let mut changed = machine;
                change(&mut changed);
                self.servers.machine = Some(changed);
                Response::of_change(changed != machine)
            }
        }
    }

    pub(super) fn delete_provider_object(&mut self, reconcile: &Reconcile, role: Role, uid: &str) -> Response {
        match *self.servers.provider(role) {
            None => Response::Unchanged,
            Some(child) if child.uid() != uid => Response::Conflict,
            Some(child) => {
                let mut observed = reconcile.view.servers;
                self.check_provider_is_managed(reconcile, *observed.provider(role));
                if self.servers.managed_machine().is_some() {
                    self.violate(Invariant::MachineIsDeletedFirst);
                }
                *self.servers.provider(role) = Some(ProviderState { deleting: true, ..child });
                Response::of_change(!child.deleting)
            }
        }
    }
}
