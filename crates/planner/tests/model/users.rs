//! Users, who edit the object, and the owner of the machine, who reclaims it.

use crate::simulation::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edit {
    /// Time does this, but it counts as an edit.
    ToggleWindow,
    ToggleKillSwitch,
    ToggleEnabled,
    Delete,
    RequestReclaim,
}

impl Edit {
    pub(super) fn possible(world: &World) -> Vec<Edit> {
        let mut edits = vec![Edit::ToggleWindow, Edit::ToggleKillSwitch, Edit::ToggleEnabled];
        if world.object.is_some_and(|it| !it.requested.deleted && it.finalizer) {
            edits.push(Edit::Delete);
        }
        if world.servers.node.is_some_and(|it| !it.reclaim_requested) {
            edits.push(Edit::RequestReclaim);
        }
        edits
    }

    pub(super) fn apply(self, world: &mut World) {
        let Some(object) = &mut world.object else { return };
        match self {
            Edit::ToggleWindow => world.window_open ^= true,
            Edit::ToggleKillSwitch => object.requested.kill_switch ^= true,
            Edit::ToggleEnabled => {
                object.requested.enabled ^= true;
                world.enabled_since_reclaim |= object.requested.enabled;
            }
            Edit::Delete => object.requested.deleted = true,
            Edit::RequestReclaim => world.servers.node.iter_mut().for_each(|it| it.reclaim_requested = true),
        }
    }
}
