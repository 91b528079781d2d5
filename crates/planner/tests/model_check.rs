//! The shipped `decide`, checked in every state that small worlds can reach.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod model;

use std::io::Write as _;

use model::{Budget, Mistake, Rule, Step, Trouble, World, ends_well};
use stateright::{Checker as _, Model, Property};

const ENDS_WELL: &str = "left alone, it comes to rest where the spec says, and writes nothing there";

/// A world in which much can happen, with a mistake in `decide` or without.
#[derive(Clone, Copy)]
struct Small {
    trouble: Trouble,
    budget: Budget,
    mistake: Option<Mistake>,
}

impl Model for Small {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.mistake, self.budget)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        // What follows a broken rule proves nothing.
        if world.broken.is_none() {
            steps.extend(Step::possible(world, self.trouble));
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        step.after(world, self.trouble)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(name(Rule::ChildrenAreStoredFirst), |_, it| holds(it, Rule::ChildrenAreStoredFirst)),
            Property::always(name(Rule::ShutdownIsStoredFirst), |_, it| holds(it, Rule::ShutdownIsStoredFirst)),
            Property::always(name(Rule::ReclaimIsStoredFirst), |_, it| holds(it, Rule::ReclaimIsStoredFirst)),
            Property::always(name(Rule::HeldIsLeftAlone), |_, it| holds(it, Rule::HeldIsLeftAlone)),
            Property::always(name(Rule::PodsAreAskedFirst), |_, it| holds(it, Rule::PodsAreAskedFirst)),
            Property::always(name(Rule::ForeignIsNotTouched), |_, it| holds(it, Rule::ForeignIsNotTouched)),
            Property::always(name(Rule::ReclaimedStaysAway), |_, it| holds(it, Rule::ReclaimedStaysAway)),
            Property::always(name(Rule::NothingIsLeftBehind), |_, it| holds(it, Rule::NothingIsLeftBehind)),
            Property::always(name(Rule::OneOfEachChild), |_, it| holds(it, Rule::OneOfEachChild)),
            Property::always(name(Rule::NothingIsMadeInVain), |_, it| holds(it, Rule::NothingIsMadeInVain)),
            Property::always(name(Rule::PausedIsLeftAlone), |_, it| holds(it, Rule::PausedIsLeftAlone)),
            Property::always(ENDS_WELL, |_, it: &World| it.broken.is_some() || ends_well(*it)),
        ]
    }
}

fn holds(world: &World, rule: Rule) -> bool {
    world.broken != Some(rule)
}

fn name(rule: Rule) -> &'static str {
    match rule {
        Rule::ChildrenAreStoredFirst => "no child is made before it is stored that it will be",
        Rule::ShutdownIsStoredFirst => "no shutdown begins before it is stored that it does",
        Rule::ReclaimIsStoredFirst => "no reclaim begins before it is stored that it does",
        Rule::HeldIsLeftAlone => "nothing is taken from a machine that is disabled or whose spec nobody can read",
        Rule::PodsAreAskedFirst => "no machine goes before its pods were asked to leave",
        Rule::ForeignIsNotTouched => "nothing is touched that is somebody else's",
        Rule::ReclaimedStaysAway => "no machine comes back that its owner wanted",
        Rule::NothingIsLeftBehind => "no object goes and leaves something behind",
        Rule::OneOfEachChild => "every machine is made with children that are new, whole and ours",
        Rule::NothingIsMadeInVain => "no machine is made that its Cluster does not take, or too soon after one failed",
        Rule::PausedIsLeftAlone => "no shutdown goes on while the Cluster is paused",
    }
}

/// Says how much was looked at; the test runner keeps to itself what a passing test prints in the usual way.
#[allow(clippy::explicit_write, reason = "the print macros are captured")]
fn tell(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

/// Looks at every state that a world can reach.
fn check(name: &str, trouble: Trouble, budget: Budget) {
    let checker = Small { trouble, budget, mistake: None }.checker().threads(2).spawn_bfs().join();
    tell(&format!("{name}: {} states", checker.unique_state_count()));
    let found = checker.discoveries();
    for (property, path) in &found {
        tell(&format!("not so: {property}: {:?} leads to {:#?}", path.clone().into_actions(), path.last_state()));
    }
    assert!(found.is_empty(), "{name}: not all is as it should be");
}

const TROUBLED: Budget = Budget { edits: 2, crashes: 1, troubles: 1, losses: 0 };

#[test]
fn every_state_with_three_edits_and_a_crash_is_sound_and_ends_well() {
    check("three edits and a crash", Trouble::Nothing, Budget { edits: 3, crashes: 1, ..Budget::default() });
}

#[test]
fn every_state_with_lost_answers_is_sound_and_ends_well() {
    check("lost answers", Trouble::Nothing, Budget { edits: 2, losses: 2, ..Budget::default() });
}

#[test]
fn every_state_with_strangers_is_sound_and_ends_well() {
    check("strangers", Trouble::Strangers, TROUBLED);
}

#[test]
fn every_state_with_strangers_beside_what_was_left_is_sound_and_ends_well() {
    let twice = Budget { edits: 1, troubles: 2, ..Budget::default() };
    check("strangers beside what was left", Trouble::Strangers, twice);
}

#[test]
fn every_state_with_a_workload_cluster_that_is_lost_is_sound_and_ends_well() {
    check("a workload cluster that is lost", Trouble::Workload, TROUBLED);
}

#[test]
fn every_state_with_machines_that_fail_is_sound_and_ends_well() {
    check("machines that fail", Trouble::Machine, TROUBLED);
}

#[test]
fn every_state_with_a_cluster_that_is_paused_or_missing_is_sound_and_ends_well() {
    check("a Cluster that is paused or missing", Trouble::Cluster, TROUBLED);
}

#[test]
fn every_state_with_a_spec_that_does_not_parse_is_sound_and_ends_well() {
    check("a spec that does not parse", Trouble::Spec, TROUBLED);
}

#[test]
fn each_planted_mistake_is_found_by_the_rule_that_it_breaks() {
    let edited = Budget { edits: 2, crashes: 1, ..Budget::default() };
    let troubled = Budget { edits: 1, troubles: 1, ..Budget::default() };
    let finds = |mistake: Mistake, trouble: Trouble, rule: &'static str| {
        let budget = if trouble == Trouble::Nothing { edited } else { troubled };
        let checker = Small { trouble, budget, mistake: Some(mistake) }.checker().threads(2).spawn_bfs().join();
        let found: Vec<&str> = checker.discoveries().into_keys().collect();
        tell(&format!("{mistake:?} is found by: {}", found.join("; ")));
        assert_eq!(found, [rule], "{mistake:?}");
    };
    for (mistake, rule) in [
        (Mistake::ForgetsToStore, name(Rule::ChildrenAreStoredFirst)),
        (Mistake::ForgetsToStoreChildren, name(Rule::ChildrenAreStoredFirst)),
        (Mistake::ForgetsToStoreShutdown, name(Rule::ShutdownIsStoredFirst)),
        (Mistake::ForgetsToStoreReclaim, name(Rule::ReclaimIsStoredFirst)),
        (Mistake::ForgetsToTakeBack, ENDS_WELL),
        (Mistake::ForgetsToDisable, name(Rule::ReclaimedStaysAway)),
        (Mistake::LeavesChildrenBehind, name(Rule::NothingIsLeftBehind)),
        (Mistake::KeepsTheFinalizer, ENDS_WELL),
        (Mistake::WritesAtRest, ENDS_WELL),
        (Mistake::RemovesWhileDisabled, name(Rule::HeldIsLeftAlone)),
        (Mistake::SkipsTheDrain, name(Rule::PodsAreAskedFirst)),
    ] {
        finds(mistake, Trouble::Nothing, rule);
    }
    finds(Mistake::TouchesForeignMachine, Trouble::Strangers, name(Rule::ForeignIsNotTouched));
    finds(Mistake::TouchesForeignChild, Trouble::Strangers, name(Rule::ForeignIsNotTouched));
    finds(Mistake::OverlooksStrangers, Trouble::Strangers, ENDS_WELL);
    finds(Mistake::TakesSilenceForNoNode, Trouble::Workload, name(Rule::PodsAreAskedFirst));
    finds(Mistake::WaitsForTheCluster, Trouble::Workload, ENDS_WELL);
    finds(Mistake::ReusesLeftovers, Trouble::Machine, name(Rule::OneOfEachChild));
    finds(Mistake::KeepsTheFailed, Trouble::Machine, ENDS_WELL);
    finds(Mistake::MakesInVain, Trouble::Machine, name(Rule::NothingIsMadeInVain));
    finds(Mistake::MakesInVain, Trouble::Cluster, name(Rule::NothingIsMadeInVain));
    finds(Mistake::IgnoresThePause, Trouble::Cluster, name(Rule::PausedIsLeftAlone));
    finds(Mistake::RemovesWhatItCannotRead, Trouble::Spec, name(Rule::HeldIsLeftAlone));
}
