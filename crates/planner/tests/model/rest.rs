//! What becomes of a world in which nobody asks for anything more, and in which everybody does their part.

use std::cell::RefCell;
use std::collections::HashMap;

use super::right::is_right;
use super::state::{Budget, LAST_INSTANT, Lost, Reach, World};

/// Passes within which a world that is left alone comes to rest.
const BOUND: usize = 40;

thread_local! {
    /// What is known of how worlds end: many come together as soon as they are left alone.
    static ENDS: RefCell<HashMap<World, bool>> = RefCell::default();
}

/// Whether a world that is left alone comes to rest where the spec says, and nothing is written there. Where a rule is
/// broken on the way, it is that rule's to tell.
pub(crate) fn ends_well(mut world: World) -> bool {
    world.finish_pass();
    world.catch_up();
    world.budget = Budget::default();
    ENDS.with_borrow_mut(|ends| {
        let end = || at_rest(world).is_some_and(|end| end.broken.is_some() || is_right(&end));
        *ends.entry(world).or_insert_with(end)
    })
}

fn at_rest(mut world: World) -> Option<World> {
    for _ in 0..BOUND {
        let before = world;
        if world.object.is_none() || world.broken.is_some() {
            return Some(world);
        }
        world.look();
        let writes = world.pass.is_some();
        world.finish_pass();
        world.there.others_finish();
        if world.there.reach == Reach::Sought {
            world.there.reach = Reach::Connected;
        }
        world.catch_up();
        if world != before {
            continue;
        }
        // At rest nothing is written either, not even what is there already.
        if writes {
            return None;
        }
        if world.lost.is_some_and(|it| it.waits) {
            world.lost = world.lost.map(|it| Lost { waits: false, ..it });
        } else if world.instant < LAST_INSTANT {
            world.instant += 1;
        } else {
            return Some(world);
        }
    }
    None
}
