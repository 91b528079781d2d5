//! The shipped `decide`, checked in every state that a small world can reach.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod model;

use std::io::Write as _;

use fivespot_api::Phase;
use fivespot_core::observed::Marks;
use model::{LAST_INSTANT, Mistake, Pass, World};
use stateright::{Checker as _, HasDiscoveries, Model, Property};

/// Machines that may be made: one, one after a shutdown, and one more that must not be needed.
const MACHINES: u8 = 3;
/// Passes within which a world that is left alone comes to rest.
const BOUND: usize = 40;

/// The world in which everything can happen, with a mistake in `decide` or without.
struct Everything {
    mistake: Option<Mistake>,
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Look,
    Send,
    Crash,
    HearOfObject,
    HearOfMachine,
    HearOfNode,
    OthersFinish,
    TimePasses,
    WindowFlips,
    Kill,
    Enable,
    Delete,
    Ask,
}

impl Model for Everything {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.mistake)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let Some(object) = world.object else { return };
        match world.pass {
            None => steps.push(Step::Look),
            Some(_) => steps.push(Step::Send),
        }
        if world.pass.is_some() && world.crashes > 0 {
            steps.push(Step::Crash);
        }
        if world.caches.object != world.object {
            steps.push(Step::HearOfObject);
        }
        if world.caches.machine != world.machine {
            steps.push(Step::HearOfMachine);
        }
        if world.caches.node != world.node {
            steps.push(Step::HearOfNode);
        }
        if world.machine.is_some() {
            steps.push(Step::OthersFinish);
        }
        if world.instant < LAST_INSTANT && object.shutdown.is_some() {
            steps.push(Step::TimePasses);
        }
        if world.edits > 0 {
            steps.extend([Step::WindowFlips, Step::Kill, Step::Enable]);
            if !object.asked.deleted && object.finalizer {
                steps.push(Step::Delete);
            }
            if world.node.is_some_and(|it| !it.request) {
                steps.push(Step::Ask);
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        let edit = matches!(step, Step::WindowFlips | Step::Kill | Step::Enable | Step::Delete | Step::Ask);
        next.edits -= u8::from(edit);
        match step {
            Step::Look => next.pass = Some(Pass::begin(world)?),
            Step::Send => next.send(),
            Step::Crash => {
                next.crashes -= 1;
                next.pass = None;
                // A new process begins with a list of what there is.
                next.catch_up();
            }
            Step::HearOfObject => next.caches.object = world.object,
            Step::HearOfMachine => next.caches.machine = world.machine,
            Step::HearOfNode => next.caches.node = world.node,
            Step::OthersFinish => next.others_finish(),
            Step::TimePasses => next.instant += 1,
            Step::WindowFlips => next.window = !world.window,
            Step::Kill => next.object.as_mut()?.asked.killed ^= true,
            Step::Enable => {
                next.object.as_mut()?.asked.enabled ^= true;
                next.wanted_again |= next.object?.asked.enabled;
            }
            Step::Delete => next.object.as_mut()?.asked.deleted = true,
            Step::Ask => next.node.as_mut()?.request = true,
        }
        (next != *world && next.made <= MACHINES).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("intent is stored before the act, and nothing is left behind", |_, world: &World| {
                world.broken.is_none()
            }),
            Property::always("left alone, it comes to rest where the spec says", |_, world: &World| {
                at_rest(*world).is_some_and(|end| is_right(&end))
            }),
        ]
    }
}

/// What becomes of a world in which nobody asks for anything more, and in which everybody does their part.
fn at_rest(mut world: World) -> Option<World> {
    for _ in 0..BOUND {
        while world.pass.is_some() {
            world.send();
        }
        world.catch_up();
        let before = world;
        if world.object.is_none() {
            return Some(world);
        }
        world.pass = Pass::begin(&world);
        while world.pass.is_some() {
            world.send();
        }
        world.others_finish();
        world.catch_up();
        if world == before && world.instant == LAST_INSTANT {
            // At rest nothing is written either, not even what is there already.
            return Pass::begin(&world).is_none().then_some(world);
        }
        if world == before {
            world.instant += 1;
        }
    }
    None
}

fn is_right(world: &World) -> bool {
    let nothing_left = world.machine.is_none() && world.bootstrap.is_none() && world.infrastructure.is_none();
    let Some(object) = world.object else { return nothing_left };
    let forgotten = !object.refs && object.shutdown.is_none();
    match (object.asked, object.phase) {
        (asked, _) if asked.deleted => false,
        (asked, phase) if asked.killed => phase == Some(Phase::Terminated) && nothing_left && forgotten,
        (asked, phase) if !asked.enabled => phase == Some(Phase::Disabled) && object.shutdown.is_none(),
        (_, phase) if world.window => {
            phase == Some(Phase::Active)
                && world.machine.is_some_and(|it| !it.deleting && it.marks == Marks::default())
                && world.bootstrap.is_some()
                && world.infrastructure.is_some()
                && object.shutdown.is_none()
        }
        (_, phase) => phase == Some(Phase::Inactive) && nothing_left && forgotten,
    }
}

/// Says how much was looked at; the test runner keeps to itself what a passing test prints in the usual way.
#[allow(clippy::explicit_write, reason = "the print macros are captured")]
fn tell(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

#[test]
fn every_reachable_state_is_sound_and_ends_well() {
    let checker = Everything { mistake: None }.checker().threads(2).spawn_bfs().join();
    tell(&format!("states of the model checked: {}", checker.unique_state_count()));
    checker.assert_properties();
}

#[test]
fn each_planted_mistake_is_found() {
    for mistake in [
        Mistake::ForgetsToStore,
        Mistake::ForgetsToTakeBack,
        Mistake::ForgetsToDisable,
        Mistake::LeavesChildrenBehind,
        Mistake::KeepsTheFinalizer,
    ] {
        let world = Everything { mistake: Some(mistake) };
        let checker = world.checker().threads(2).finish_when(HasDiscoveries::Any).spawn_bfs().join();
        let found = checker.discoveries();
        assert!(!found.is_empty(), "{mistake:?} was not found in {} states", checker.unique_state_count());
        tell(&format!("{mistake:?} is found: {}", found.keys().copied().collect::<Vec<_>>().join("; ")));
    }
}
