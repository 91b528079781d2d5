//! People, who edit the object, and the owner of the machine, who wants it back.

use super::state::{NodeState, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edit {
    /// Nobody does it but time; it counts as if somebody did.
    WindowFlips,
    Kill,
    Enable,
    Delete,
    Reclaim,
}

impl Edit {
    /// What can be asked for now.
    pub(super) fn possible(world: &World) -> Vec<Edit> {
        let mut edits = vec![Edit::WindowFlips, Edit::Kill, Edit::Enable];
        if world.object.is_some_and(|it| !it.asked.deleted && it.finalizer) {
            edits.push(Edit::Delete);
        }
        if world.there.node.is_some_and(|it| !it.request) {
            edits.push(Edit::Reclaim);
        }
        edits
    }

    pub(super) fn happen(self, world: &mut World) {
        let Some(object) = &mut world.object else { return };
        match self {
            Edit::WindowFlips => world.window ^= true,
            Edit::Kill => object.asked.killed ^= true,
            Edit::Enable => {
                object.asked.enabled ^= true;
                world.wanted_again |= object.asked.enabled;
            }
            Edit::Delete => object.asked.deleted = true,
            Edit::Reclaim => world.there.node = world.there.node.map(|it| NodeState { request: true, ..it }),
        }
    }
}
