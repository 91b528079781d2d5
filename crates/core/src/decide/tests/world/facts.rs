//! What can be said of a world.

use super::{Pod, Reach, World};
use crate::observed::{Cordon, Health, Machine, Marks, ProviderChild, Slot};

impl World {
    pub(in super::super) fn machine_is_foreign(&self) -> bool {
        matches!(self.machine, Slot::Foreign(_))
    }

    /// The Machine, if nobody has deleted it.
    pub(in super::super) fn alive(&self) -> Option<&Machine> {
        self.machine.ours().filter(|it| !it.deleting)
    }

    /// Whether a shutdown is past the point of no return.
    pub(in super::super) fn is_leaving(&self) -> bool {
        let begun = self.stored.shutdown_started_at.is_some();
        self.machine.ours().map_or(begun && !self.machine_is_foreign(), |it| it.deleting)
    }

    pub(in super::super) fn machine_has_failed(&self) -> bool {
        self.machine.ours().is_some_and(|it| matches!(it.health, Health::Failed(_)))
    }

    /// Whether the Machine that is there was given back to its owner before.
    pub(in super::super) fn was_reclaimed(&self) -> bool {
        let uid = self.machine.ours().map(|it| &it.uid);
        self.stored.reclaim.as_ref().is_some_and(|it| Some(&it.machine_uid) == uid)
    }

    pub(in super::super) fn node_is_seen(&self) -> bool {
        self.reach == Reach::Answers && self.node.is_some() && self.machine.ours().is_some()
    }

    /// Whether the owner is seen to want the machine, or was.
    pub(in super::super) fn is_asked_for(&self) -> bool {
        self.stored.reclaiming || (self.asked.reclaim && self.node_is_seen() && !self.was_reclaimed())
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
        self.machine.ours().is_none() && !left
    }

    /// Whether a child is there that is not somebody else's by now: what a Machine has adopted goes with it.
    pub(super) fn is_ours(&self, child: Option<&ProviderChild>) -> bool {
        let theirs = |it: &ProviderChild| match &self.machine {
            Slot::Foreign(uid) => it.adopted_by.as_ref() == Some(uid),
            Slot::Ours(_) | Slot::Absent | Slot::NotRead => false,
        };
        child.is_some_and(|it| !theirs(it))
    }

    /// Whether nothing of a shutdown is left on a machine that stays, as far as its Node can be reached.
    pub(in super::super) fn is_taken_back(&self) -> bool {
        let opened = !matches!(self.node, Some(Cordon::Ours | Cordon::Reopened)) || self.reach == Reach::Never;
        let unmarked = self.alive().is_some_and(|it| it.marks == Marks::default());
        opened && unmarked && self.stored.shutdown_started_at.is_none()
    }
}
