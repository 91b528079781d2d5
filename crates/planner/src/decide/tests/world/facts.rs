//! What can be said of a world.

use super::eyes::ORDERS;
use super::parts::{NO_AGENT, agent};
use super::{Pod, Reach, Schedule, World};
use crate::observed::{AgentConfig, Child, Cordon, Exclusions, Machine, MachineHealth, ProviderChild};

impl World {
    pub(in super::super) fn machine_is_foreign(&self) -> bool {
        matches!(self.machine, Child::Unmanaged(_))
    }

    /// The Machine, if nobody has deleted it.
    pub(in super::super) fn alive(&self) -> Option<&Machine> {
        self.machine.managed().filter(|it| !it.deleting)
    }

    /// Whether a shutdown is past the point of no return.
    pub(in super::super) fn is_leaving(&self) -> bool {
        let begun = self.stored.shutdown_started_at.is_some();
        self.machine.managed().map_or(begun && !self.machine_is_foreign(), |it| it.deleting)
    }

    pub(in super::super) fn machine_has_failed(&self) -> bool {
        self.machine.managed().is_some_and(|it| matches!(it.health, MachineHealth::Failed(_)))
    }

    /// Whether the Machine that is there was given back to its owner before.
    pub(in super::super) fn was_reclaimed(&self) -> bool {
        let uid = self.machine.managed().map(|it| &it.uid);
        self.stored.reclaim.as_ref().is_some_and(|it| Some(&it.machine_uid) == uid)
    }

    pub(in super::super) fn node_is_seen(&self) -> bool {
        self.reach == Reach::Answers && self.node.is_some() && self.machine.managed().is_some()
    }

    /// Whether the owner is seen to want the machine, or was.
    pub(in super::super) fn is_asked_for(&self) -> bool {
        let counts = self.asked.reclaim && self.asked.orders && !self.was_reclaimed();
        self.stored.reclaim_in_progress() || (counts && self.node_is_seen())
    }

    pub(in super::super) fn agent_is_there(&self) -> bool {
        self.agent != NO_AGENT
    }

    /// What is wrong with the agent of a machine that is at rest.
    pub(in super::super) fn agent_is_wrong(&self) -> Option<&'static str> {
        let machine = self.machine.managed().filter(|_| self.node_is_seen())?;
        let stays = !machine.deleting && !self.was_reclaimed();
        let there = self.agent == agent(AgentConfig::Present(ORDERS.to_owned()));
        let wrong = if stays && self.asked.orders {
            // What is said of the rest does not count, and what was said before stands.
            (!there && self.asked.schedule != Schedule::Invalid).then_some("no agent looks after it")
        } else {
            (self.agent != NO_AGENT).then_some("something is left of the agent")
        };
        wrong.or_else(|| self.asked.reclaim.then_some("a request is left on its Node"))
    }

    /// Whether somebody wants the machine out at once.
    pub(in super::super) fn is_ejected(&self) -> bool {
        self.asked.killed || self.is_asked_for()
    }

    pub(in super::super) fn pod_leaves(&self) -> bool {
        self.pod == Some(Pod::Leaving)
    }

    pub(in super::super) fn nothing_is_left(&self) -> bool {
        let forgotten = self.stored.refs.is_none() && self.stored.shutdown_started_at.is_none();
        self.nothing_of_ours() && (self.object_gone || forgotten)
    }

    pub(super) fn nothing_of_ours(&self) -> bool {
        let left = [&self.bootstrap, &self.infrastructure].into_iter().any(|it| self.is_ours(it.as_ref()));
        self.machine.managed().is_none() && !left
    }

    /// Whether a child is there that is not somebody else's by now: what a Machine has adopted goes with it.
    pub(super) fn is_ours(&self, child: Option<&ProviderChild>) -> bool {
        let theirs = |it: &ProviderChild| match &self.machine {
            Child::Unmanaged(uid) => it.adopted_by.as_ref() == Some(uid),
            Child::Managed(_) | Child::Absent | Child::NotRead => false,
        };
        child.is_some_and(|it| !theirs(it))
    }

    /// Whether nothing of a shutdown is left on a machine that stays, as far as its Node can be reached.
    pub(in super::super) fn is_taken_back(&self) -> bool {
        let opened = !matches!(self.node, Some(Cordon::ByController | Cordon::Reverted)) || self.reach == Reach::Never;
        let unmarked = self.alive().is_some_and(|it| it.exclusions == Exclusions::default());
        opened && unmarked && self.stored.shutdown_started_at.is_none()
    }
}
