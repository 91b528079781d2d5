//! A process that dies after any act, and another that takes over.

use super::world::{PARTS, World, every_start};
use crate::plan::{Action, ForceRemoval, Step};

/// In how many of the first passes a crash is tried.
const PASSES: usize = 3;

/// What had been done when the process died.
struct Cut {
    acts: Vec<Step>,
    /// How many parts of a machine that was being made.
    parts: usize,
}

/// Every point at which a process can die while it carries out a plan.
fn cuts(plan: &[Step]) -> Vec<Cut> {
    let mut all = Vec::new();
    for at in 0..=plan.len() {
        let done = &plan[..at];
        match plan.get(at) {
            Some(Step::ForceRemove(removal)) => {
                all.extend(side_by_side(removal).into_iter().map(|it| Cut { acts: [done, &it].concat(), parts: 0 }));
            }
            Some(Step::CreateChildren) => all.extend((0..PARTS).map(|parts| Cut { acts: done.to_vec(), parts })),
            Some(_) | None => all.push(Cut { acts: done.to_vec(), parts: 0 }),
        }
    }
    all
}

/// Lists that are done side by side can each have come to another point.
fn side_by_side(removal: &ForceRemoval) -> Vec<Vec<Step>> {
    removal.concurrent_lists().fold(vec![Vec::new()], |before, list| {
        let points = prefixes(list);
        before.iter().flat_map(|it| points.iter().map(|more| [&it[..], more].concat())).collect()
    })
}

fn prefixes(list: &[Action]) -> Vec<Vec<Step>> {
    (0..=list.len()).map(|at| list[..at].iter().cloned().map(Step::Run).collect()).collect()
}

/// Every world that a crash in the next pass can leave behind, where nobody and where somebody did something before the
/// next process began.
fn crashed(world: &World) -> Vec<World> {
    let mut left = Vec::new();
    for Cut { acts, parts } in cuts(&world.decide().steps) {
        let mut at_once = world.clone();
        at_once.carry_out(&acts);
        if parts > 0 {
            at_once.create(parts);
        }
        at_once.restart();
        // A request that nobody has stored can go with its Node, or be made, before anybody looks again.
        if !at_once.asked.reclaim || at_once.stored.reclaim_in_progress() {
            let mut later = at_once.clone();
            later.others_act();
            left.push(later);
        }
        left.push(at_once);
    }
    left
}

#[test]
fn a_crash_at_any_act_of_the_first_passes_changes_nothing_about_the_end() {
    let mut tried = 0_u32;
    for start in every_start() {
        let uninterrupted = start.clone().settle();
        let mut known: Vec<World> = Vec::new();
        let mut world = start.clone();
        for pass in 1..=PASSES {
            for left in crashed(&world) {
                if known.contains(&left) {
                    continue;
                }
                known.push(left.clone());
                let end = left.clone().settle();
                assert!(
                    end.is_like(&uninterrupted),
                    "from {start:#?}\na crash in pass {pass} left {left:#?}\nwhich ends in {end:#?}\nand not in {uninterrupted:#?}"
                );
                tried += 1;
            }
            if !world.turn(&mut |_, _| {}) || world.object_gone {
                break;
            }
        }
    }
    assert!(tried > 50_000, "only {tried} crashes");
}

#[test]
fn every_combination_of_what_is_done_side_by_side_is_tried() {
    let together = Step::ForceRemove(ForceRemoval {
        machine: vec![Action::Cordon, Action::Uncordon],
        node: Vec::new(),
        pods: vec![Action::DeleteAllPods],
    });
    let plan = [Step::AddFinalizer, together, Step::DisableSchedule];
    let done: Vec<usize> = cuts(&plan).iter().map(|it| it.acts.len()).collect();
    // Nothing; the finalizer with each of three times two points; all lists; all.
    assert_eq!(done, [0, 1, 2, 2, 3, 3, 4, 2, 3]);
}
