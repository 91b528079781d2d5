//! Whether a world comes to rest as expected, remembered for every world on the way: most ways meet early.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::simulation::{Budget, Connection, MAX_RECONCILES, Next, Standby, World, unexpected};

thread_local! {
    static ENDINGS: RefCell<HashMap<World, bool>> = RefCell::default();
}

/// Whether a world without further disturbances comes to rest where the spec says. If an invariant is violated on the
/// way, that invariant reports it.
pub(crate) fn ends_as_expected(mut world: World) -> bool {
    world.finish_reconcile();
    world.sync_caches();
    world.budget = Budget::default();
    // With caches that do not lag, neither has an effect.
    (world.standby, world.reread) = (Standby::Absent, false);
    if world.servers.connection == Connection::Connecting {
        world.pending.reconnect_in = 1;
    }
    ENDINGS.with_borrow_mut(|endings| {
        let mut visited = Vec::new();
        let as_expected = loop {
            if world.violated.is_some() {
                break true;
            }
            world = world.rebased();
            if let Some(known) = endings.get(&world) {
                break *known;
            }
            if visited.len() == MAX_RECONCILES {
                break false;
            }
            visited.push(world);
            match world.round(&mut |_, _| {}) {
                Ok(Next::Reconcile) => {}
                Ok(Next::Rest) => break world.violated.is_some() || unexpected(&world).is_empty(),
                Err(_) => break false,
            }
        };
        endings.extend(visited.into_iter().map(|it| (it, as_expected)));
        as_expected
    })
}
