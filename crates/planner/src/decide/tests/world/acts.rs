//! What acts do to the world. Each asserts what it needs: the API server, or a person, would mind.

use super::parts::{NO_AGENT, agent, child, machine, refs};
use super::{Pod, Reach, World};
use crate::observed::{
    AgentConfig, Child, Cluster, Cordon, Exclusions, Machine, MachineHealth, Observed, ProviderChild, Stored,
};
use crate::plan::{Action, DesiredStatus, Plan, Role, Step};

/// The parts of a machine, in the order in which they are made.
pub(in super::super) const PARTS: usize = 3;

impl World {
    /// Carries out what was decided, and reports it.
    pub(super) fn pass(&mut self, plan: &Plan, seen: &Observed) {
        self.carry_out(&plan.steps);
        if !self.object_gone {
            self.report(plan, seen);
        }
    }

    pub(in super::super) fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            self.take(step);
        }
    }

    fn report(&mut self, plan: &Plan, seen: &Observed) {
        self.store(&plan.status);
        let met = seen.bootstrap.managed().is_some() && seen.infrastructure.managed().is_some();
        let made = plan.steps.contains(&Step::CreateChildren);
        self.stored.has_child_uids = self.stored.refs.is_some() && (self.stored.has_child_uids || met || made);
    }

    fn store(&mut self, standing: &DesiredStatus) {
        self.phase = Some(standing.phase);
        self.stored = Stored {
            refs: standing.refs.clone(),
            has_child_uids: standing.refs.is_some() && self.stored.has_child_uids,
            shutdown_started_at: standing.shutdown_started_at,
            reclaim: standing.reclaim.clone(),
            ..Stored::default()
        };
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::AddFinalizer => {
                assert!(!self.asked.deleted, "too late for a finalizer: {self:#?}");
                self.finalizer = true;
            }
            Step::RemoveFinalizer => self.let_go(),
            Step::StoreStatus(standing) => self.store(standing),
            Step::CreateChildren => self.create(PARTS),
            Step::EvictPods(_) => self.evict(),
            Step::ApplyTaints { .. } => panic!("nobody wants taints here: {self:#?}"),
            Step::DisableSchedule => self.asked.enabled = false,
            Step::RollOutAgent { config } => {
                self.assert_reached();
                assert!(self.asked.orders, "nobody may ask for it: {self:#?}");
                self.agent = agent(AgentConfig::Present(config.clone()));
            }
            Step::ForceRemove(removal) => removal.concurrent_lists().flatten().for_each(|it| self.act(it)),
            Step::Run(action) => self.act(action),
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::SetExclusions(exclusions) => self.with_machine(|machine| {
                machine.exclusions.node_drain |= exclusions.node_drain;
                machine.exclusions.volume_detach |= exclusions.volume_detach;
            }),
            Action::ClearExclusions => self.with_machine(|machine| machine.exclusions = Exclusions::default()),
            Action::DeleteMachine { uid } => {
                assert_eq!(self.machine.managed().map(|it| &it.uid), Some(uid));
                self.with_machine(|machine| machine.deleting = true);
            }
            Action::DeleteProviderObject { role, uid } => self.delete_provider(*role, uid),
            Action::Cordon | Action::Uncordon => self.set_cordon(action == &Action::Cordon),
            Action::DeletePods(_) | Action::DeleteAllPods => {
                self.assert_reached();
                self.pod = None;
            }
            Action::WithdrawAgent => {
                self.assert_reached();
                self.agent = NO_AGENT;
            }
            Action::ClearReclaimRequest => {
                self.assert_reached();
                self.asked.reclaim = false;
            }
        }
    }

    fn let_go(&mut self) {
        assert!(self.asked.deleted && self.nothing_of_ours(), "something would be left behind: {self:#?}");
        (self.finalizer, self.object_gone) = (false, true);
    }

    fn with_machine(&mut self, change: impl FnOnce(&mut Machine)) {
        match &mut self.machine {
            Child::Managed(machine) => change(machine),
            Child::Absent | Child::Unmanaged(_) | Child::NotRead => panic!("no Machine of ours: {self:#?}"),
        }
    }

    fn delete_provider(&mut self, role: Role, uid: &str) {
        assert!(self.machine.managed().is_none(), "Cluster API does that: {self:#?}");
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
        assert!(self.node != Some(Cordon::ByOther), "somebody else closed it, and it stays closed: {self:#?}");
        self.node = Some(if closed { Cordon::ByController } else { Cordon::Schedulable });
    }

    fn evict(&mut self) {
        self.assert_reached();
        self.pod = self.pod.map(|pod| if pod == Pod::Willing { Pod::Leaving } else { pod });
    }

    /// Makes the first parts of a machine: bootstrap and infrastructure object, then the Machine.
    pub(in super::super) fn create(&mut self, parts: usize) {
        assert_eq!(self.cluster, Cluster::Present);
        assert!(self.finalizer && self.stored.refs == Some(refs()), "a crash would leave something behind: {self:#?}");
        assert!(self.recreate_backoff.is_none_or(|until| self.now >= until), "the last one failed just now: {self:#?}");
        let of_use = |it: &ProviderChild| !it.deleting && it.adopted_by.is_none();
        let met = [&self.bootstrap, &self.infrastructure].into_iter().flatten().all(of_use);
        // A plan may be carried out twice, and then finds what it made.
        assert!(self.machine.managed().is_some() || met, "it is of an earlier machine: {self:#?}");
        self.bootstrap.get_or_insert_with(|| child("b"));
        if parts > 1 {
            self.infrastructure.get_or_insert_with(|| child("i"));
        }
        if parts == PARTS && self.machine == Child::Absent {
            self.made += 1;
            self.machine = Child::Managed(machine(&format!("made-{}", self.made), MachineHealth::Provisioning));
        }
    }
}
