//! What acts do to the world. Each asserts what it needs: the API server, or a person, would mind.

use fivespot_api::Phase;

use super::parts::{NO_AGENT, agent, child, machine, refs};
use super::{Pod, Reach, World};
use crate::observed::{Cluster, Cordon, Health, Machine, Marks, Observed, Orders, ProviderChild, Slot, Stored};
use crate::plan::{Action, Plan, Role, Standing};

/// The parts of a machine, in the order in which they are made.
pub(in super::super) const PARTS: usize = 3;

impl World {
    /// Carries out what was decided, and reports it.
    pub(super) fn pass(&mut self, plan: &Plan, seen: &Observed) {
        self.carry_out(&plan.actions);
        if !self.object_gone {
            self.report(plan, seen);
        }
    }

    pub(in super::super) fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            self.act(action);
        }
    }

    fn report(&mut self, plan: &Plan, seen: &Observed) {
        self.store(&plan.standing);
        let met = seen.bootstrap.ours().is_some() && seen.infrastructure.ours().is_some();
        let made = plan.actions.contains(&Action::CreateChildren);
        self.stored.uids_known = self.stored.refs.is_some() && (self.stored.uids_known || met || made);
    }

    fn store(&mut self, standing: &Standing) {
        self.phase = Some(standing.phase);
        self.stored = Stored {
            refs: standing.refs.clone(),
            uids_known: standing.refs.is_some() && self.stored.uids_known,
            shutdown_started_at: standing.shutdown_started_at,
            reclaim: standing.reclaim.clone(),
            reclaiming: standing.phase == Phase::EmergencyRemove,
            ..Stored::default()
        };
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::AddFinalizer => {
                assert!(!self.asked.deleted, "too late for a finalizer: {self:#?}");
                self.finalizer = true;
            }
            Action::RemoveFinalizer => self.let_go(),
            Action::Store(standing) => self.store(standing),
            Action::CreateChildren => self.create(PARTS),
            Action::Mark(marks) => self.with_machine(|machine| {
                machine.marks.no_drain |= marks.no_drain;
                machine.marks.no_volumes |= marks.no_volumes;
            }),
            Action::Unmark => self.with_machine(|machine| machine.marks = Marks::default()),
            Action::DeleteMachine { uid } => {
                assert_eq!(self.machine.ours().map(|it| &it.uid), Some(uid));
                self.with_machine(|machine| machine.deleting = true);
            }
            Action::DeleteProvider { role, uid } => self.delete_provider(*role, uid),
            Action::Cordon | Action::Uncordon => self.set_cordon(action == &Action::Cordon),
            Action::Evict(_) | Action::EndPods(_) | Action::EndAllPods => self.end_pod(action),
            Action::Taint { .. } => panic!("nobody wants taints here: {self:#?}"),
            Action::DisableSchedule => self.asked.enabled = false,
            Action::Project { orders } => {
                self.assert_reached();
                assert!(self.asked.orders, "nobody may ask for it: {self:#?}");
                self.agent = agent(Orders::Told(orders.clone()));
            }
            Action::Unproject => {
                self.assert_reached();
                self.agent = NO_AGENT;
            }
            Action::ClearRequest => {
                self.assert_reached();
                self.asked.reclaim = false;
            }
            Action::Together(lists) => lists.iter().for_each(|list| self.carry_out(list)),
        }
    }

    fn let_go(&mut self) {
        assert!(self.asked.deleted && self.nothing_of_ours(), "something would be left behind: {self:#?}");
        (self.finalizer, self.object_gone) = (false, true);
    }

    fn with_machine(&mut self, change: impl FnOnce(&mut Machine)) {
        match &mut self.machine {
            Slot::Ours(machine) => change(machine),
            Slot::Absent | Slot::Foreign(_) | Slot::NotRead => panic!("no Machine of ours: {self:#?}"),
        }
    }

    fn delete_provider(&mut self, role: Role, uid: &str) {
        assert!(self.machine.ours().is_none(), "Cluster API does that: {self:#?}");
        let found = match role {
            Role::Bootstrap => self.bootstrap.clone(),
            Role::Infrastructure => self.infrastructure.clone(),
        };
        let part = found.filter(|it| it.uid == uid).expect("what is deleted is there");
        assert!(self.is_ours(Some(&part)), "it is somebody else's by now: {part:?}");
        let part = Some(ProviderChild { deleting: true, ..part });
        match role {
            Role::Bootstrap => self.bootstrap = part,
            Role::Infrastructure => self.infrastructure = part,
        }
    }

    /// Nothing is sent to a cluster that does not answer, or to a Node that is not there.
    fn assert_reached(&self) {
        assert!(self.reach == Reach::Answers && self.node.is_some(), "nobody is there to be asked: {self:#?}");
    }

    fn set_cordon(&mut self, closed: bool) {
        self.assert_reached();
        assert!(self.node != Some(Cordon::Others), "somebody else closed it, and it stays closed: {self:#?}");
        self.node = Some(if closed { Cordon::Ours } else { Cordon::Open });
    }

    fn end_pod(&mut self, action: &Action) {
        self.assert_reached();
        self.pod = match (action, self.pod) {
            (Action::Evict(_), Some(Pod::Willing)) => Some(Pod::Leaving),
            (Action::Evict(_), pod) => pod,
            _ => None,
        };
    }

    /// Makes the first parts of a machine: bootstrap and infrastructure object, then the Machine.
    pub(in super::super) fn create(&mut self, parts: usize) {
        assert_eq!(self.cluster, Cluster::Present);
        assert!(self.finalizer && self.stored.refs == Some(refs()), "a crash would leave something behind: {self:#?}");
        assert!(self.held_off.is_none_or(|until| self.now >= until), "the last one failed just now: {self:#?}");
        let of_use = |it: &ProviderChild| !it.deleting && it.adopted_by.is_none();
        let met = [&self.bootstrap, &self.infrastructure].into_iter().flatten().all(of_use);
        // A plan may be carried out twice, and then finds what it made.
        assert!(self.machine.ours().is_some() || met, "it is of an earlier machine: {self:#?}");
        self.bootstrap.get_or_insert_with(|| child("b"));
        if parts > 1 {
            self.infrastructure.get_or_insert_with(|| child("i"));
        }
        if parts == PARTS && self.machine == Slot::Absent {
            self.made += 1;
            self.machine = Slot::Ours(machine(&format!("made-{}", self.made), Health::Provisioning));
        }
    }
}
