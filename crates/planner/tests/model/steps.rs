//! Who does something next, and what comes of it.

use super::people::Edit;
use super::state::{LAST_INSTANT, Reach, World};
use super::trouble::{Mishap, Trouble};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    ProbeResult,
    Send,
    Crash,
    /// A request does not arrive.
    LoseRequest,
    /// A request arrives, and its answer does not.
    LoseAnswer,
    HearOfObject,
    HearOfMachine,
    HearOfNode,
    OthersFinish,
    TimePasses,
    Edit(Edit),
    GoWrong(Mishap),
    Mend,
}

impl Step {
    /// All that can happen next.
    pub(crate) fn possible(world: &World, trouble: Trouble) -> Vec<Step> {
        let Some(object) = world.object else { return Vec::new() };
        let mut steps = vec![Step::HearOfObject, Step::HearOfMachine, Step::OthersFinish, Step::Mend];
        steps.extend(of_the_controller(world));
        if world.there.reach == Reach::Connected {
            steps.push(Step::HearOfNode);
        }
        if world.instant < LAST_INSTANT && object.shutdown.is_some() {
            steps.push(Step::TimePasses);
        }
        if world.budget.edits > 0 {
            steps.extend(Edit::possible(world).into_iter().map(Step::Edit));
        }
        if world.budget.troubles > 0 {
            steps.extend(trouble.mishaps(world).iter().copied().map(Step::GoWrong));
        }
        steps
    }

    /// The world after it, if it is another.
    pub(crate) fn after(self, world: &World, trouble: Trouble) -> Option<World> {
        let mut next = *world;
        self.happen(&mut next, trouble);
        if next == *world {
            return None;
        }
        let budget = &mut next.budget;
        match self {
            Step::Edit(_) => budget.edits -= 1,
            Step::GoWrong(_) => budget.troubles -= 1,
            Step::Crash => budget.crashes -= 1,
            Step::LoseRequest | Step::LoseAnswer => budget.losses -= 1,
            Step::ProbeResult
            | Step::Send
            | Step::HearOfObject
            | Step::HearOfMachine
            | Step::HearOfNode
            | Step::OthersFinish
            | Step::TimePasses
            | Step::Mend => {}
        }
        Some(next)
    }

    fn happen(self, world: &mut World, trouble: Trouble) {
        match self {
            Step::ProbeResult => world.look(),
            Step::Send => world.send(),
            Step::Crash => {
                world.crash();
                if trouble == Trouble::Workload {
                    world.there.reach = Reach::Sought;
                }
            }
            Step::LoseRequest => world.pass = None,
            Step::LoseAnswer => world.lose_answer(),
            Step::HearOfObject => world.caches.object = world.object,
            Step::HearOfMachine => world.caches.machine = world.there.machine,
            Step::HearOfNode => world.caches.node = world.there.node,
            Step::OthersFinish => world.there.others_finish(),
            Step::TimePasses => world.instant += 1,
            Step::Edit(edit) => edit.happen(world),
            Step::GoWrong(mishap) => mishap.happen(world),
            Step::Mend => trouble.mend(world),
        }
    }
}

fn of_the_controller(world: &World) -> Vec<Step> {
    if world.pass.is_none() {
        return vec![Step::ProbeResult];
    }
    let mut steps = vec![Step::Send];
    if world.budget.crashes > 0 {
        steps.push(Step::Crash);
    }
    if world.budget.losses > 0 {
        steps.extend([Step::LoseRequest, Step::LoseAnswer]);
    }
    steps
}
