//! Checks the shipped `decide` in every state that a small simulated cluster can reach.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod model;
mod simulation;

use std::io::Write as _;

use model::{FaultClass, Transition, ends_as_expected};
use simulation::{Budget, Invariant, Mutation, Requested, Standby, World};
use stateright::{Checker as _, HasDiscoveries, Model, Property};

const ENDS_AS_EXPECTED: &str =
    "without disturbances, the world comes to rest where the spec says and nothing is written";

/// The states that are reachable with some disturbances, for `decide` or for a mutation of it.
#[derive(Clone, Copy)]
struct Exploration {
    faults: FaultClass,
    budget: Budget,
    mutation: Option<Mutation>,
}

impl Model for Exploration {
    type State = World;
    type Action = Transition;

    fn init_states(&self) -> Vec<World> {
        let mut world = World { budget: self.budget, mutation: self.mutation, ..World::new(Requested::MACHINE) };
        if self.budget.take_overs > 0 {
            world.standby = Standby::Watching(world.caches);
        }
        vec![world]
    }

    fn actions(&self, world: &World, transitions: &mut Vec<Transition>) {
        // What follows a violation proves nothing.
        if world.violated.is_none() {
            transitions.extend(Transition::possible(world, self.faults));
        }
    }

    fn next_state(&self, world: &World, transition: Transition) -> Option<World> {
        transition.next(world, self.faults)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! holds {
            ($($invariant:ident)+) => {
                vec![
                    $(Property::always(Invariant::$invariant.description(), |_, it: &World| {
                        it.violated != Some(Invariant::$invariant)
                    }),)+
                    Property::always(ENDS_AS_EXPECTED, |_, it: &World| it.violated.is_some() || ends_as_expected(*it)),
                ]
            };
        }
        holds! {
            RefsAreStoredBeforeCreation
            ShutdownIsStoredBeforeRemoval
            ReclaimIsStoredBeforeRemoval
            OldReclaimRequestIsNotObeyed
            DisabledOrInvalidIsLeftAlone
            NodeIsDrainedBeforeDeletion
            UnmanagedObjectIsNotTouched
            ReclaimedMachineStaysAway
            NothingIsLeftBehind
            MachineIsDeletedFirst
            MachineGetsNewChildren
            MachineIsCreatedOnlyIfUsable
            PausedClusterIsLeftAlone
        }
    }
}

/// The test runner captures what the print macros write.
#[allow(clippy::explicit_write, reason = "the print macros are captured")]
fn print(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

/// Explores every reachable state. There are at least `min_states`, so that a simulation that can do less is noticed.
fn check(name: &str, faults: FaultClass, budget: Budget, min_states: usize) {
    let checker = Exploration { faults, budget, mutation: None }.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    print(&format!("{name}: {states} states"));
    let violations = checker.discoveries();
    for (property, path) in &violations {
        print(&format!("violated: {property}: {:?} leads to {:#?}", path.clone().into_actions(), path.last_state()));
    }
    assert!(violations.is_empty(), "{name}: a property does not hold");
    assert!(states >= min_states, "{name}: only {states} states");
}

const WITH_FAULT: Budget = Budget { edits: 2, crashes: 1, faults: 1, losses: 0, take_overs: 0 };

const TAKE_OVER: Budget = Budget { edits: 2, crashes: 0, faults: 0, losses: 0, take_overs: 1 };

/// Which one is faster depends on the violation.
#[derive(Clone, Copy)]
enum Search {
    DepthFirst,
    BreadthFirst,
}

#[test]
fn three_edits_and_a_crash() {
    check("three edits and a crash", FaultClass::None, Budget { edits: 3, crashes: 1, ..Budget::default() }, 1_200_000);
}

#[test]
fn lost_messages() {
    check("lost messages", FaultClass::None, Budget { edits: 2, losses: 2, ..Budget::default() }, 890_000);
}

#[test]
fn take_over() {
    check("take-over", FaultClass::None, TAKE_OVER, 7_600_000);
}

/// The instance that took over is replaced by the first one, whose caches have not received anything since.
#[test]
fn take_over_and_back() {
    check("take-over and back", FaultClass::None, Budget { edits: 1, take_overs: 2, ..Budget::default() }, 1_180_000);
}

/// Each of these needs a certain order of events, so the search ends when it has found the one that it looks for.
#[test]
fn take_over_without_reading_the_object_is_found() {
    let finds = |invariant: Invariant, search: Search| {
        let property = invariant.description();
        let model = Exploration { faults: FaultClass::None, budget: TAKE_OVER, mutation: Some(Mutation::SkipReread) };
        let builder = model.checker().finish_when(HasDiscoveries::AnyOf([property].into()));
        let violated = match search {
            Search::DepthFirst => builder.spawn_dfs().join().discoveries(),
            Search::BreadthFirst => builder.spawn_bfs().join().discoveries(),
        };
        let path = violated.get(property).unwrap_or_else(|| panic!("SkipReread does not violate: {property}"));
        print(&format!("SkipReread violates: {property}: {:?}", path.clone().into_actions()));
    };
    finds(Invariant::RefsAreStoredBeforeCreation, Search::DepthFirst);
    finds(Invariant::ReclaimedMachineStaysAway, Search::BreadthFirst);
}

#[test]
fn other_clients() {
    check("other clients", FaultClass::OtherClients, WITH_FAULT, 3_100_000);
}

#[test]
fn other_clients_twice() {
    let twice = Budget { edits: 1, faults: 2, ..Budget::default() };
    check("other clients twice", FaultClass::OtherClients, twice, 660_000);
}

#[test]
fn unreachable_workload_cluster() {
    check("unreachable workload cluster", FaultClass::WorkloadCluster, WITH_FAULT, 1_570_000);
}

#[test]
fn failing_machines() {
    check("failing machines", FaultClass::Machine, WITH_FAULT, 2_170_000);
}

#[test]
fn paused_or_missing_cluster() {
    check("paused or missing Cluster", FaultClass::Cluster, WITH_FAULT, 1_200_000);
}

#[test]
fn invalid_spec() {
    check("invalid spec", FaultClass::Spec, WITH_FAULT, 1_420_000);
}

#[test]
fn clock_stepped_back() {
    check("clock stepped back", FaultClass::Clock, WITH_FAULT, 1_020_000);
}

#[test]
fn each_mutation_is_found_by_the_property_it_violates() {
    let edits = Budget { edits: 2, crashes: 1, ..Budget::default() };
    let fault = Budget { edits: 1, faults: 1, ..Budget::default() };
    let finds = |mutation: Mutation, faults: FaultClass, property: &'static str| {
        let budget = if faults == FaultClass::None { edits } else { fault };
        let checker = Exploration { faults, budget, mutation: Some(mutation) }.checker().threads(2).spawn_bfs().join();
        let violated: Vec<&str> = checker.discoveries().into_keys().collect();
        print(&format!("{mutation:?} violates: {}", violated.join("; ")));
        assert_eq!(violated, [property], "{mutation:?}");
    };
    let violates = |mutation: Mutation, faults: FaultClass, invariant: Invariant| {
        finds(mutation, faults, invariant.description());
    };
    let none = FaultClass::None;
    violates(Mutation::SkipStore, none, Invariant::RefsAreStoredBeforeCreation);
    violates(Mutation::SkipIntent, none, Invariant::RefsAreStoredBeforeCreation);
    violates(Mutation::HonourObservedIntent, none, Invariant::RefsAreStoredBeforeCreation);
    finds(Mutation::SkipClearBeforeIntent, none, ENDS_AS_EXPECTED);
    violates(Mutation::SkipStoreOfShutdown, none, Invariant::ShutdownIsStoredBeforeRemoval);
    violates(Mutation::SkipStoreOfReclaim, none, Invariant::ReclaimIsStoredBeforeRemoval);
    violates(Mutation::ObeyOldRequest, none, Invariant::OldReclaimRequestIsNotObeyed);
    finds(Mutation::SkipCancellation, none, ENDS_AS_EXPECTED);
    violates(Mutation::SkipDisableSchedule, none, Invariant::ReclaimedMachineStaysAway);
    violates(Mutation::RemoveFinalizerEarly, none, Invariant::NothingIsLeftBehind);
    finds(Mutation::KeepFinalizer, none, ENDS_AS_EXPECTED);
    finds(Mutation::WriteAtRest, none, ENDS_AS_EXPECTED);
    finds(Mutation::SkipWake, none, ENDS_AS_EXPECTED);
    violates(Mutation::RemoveWhileDisabled, none, Invariant::DisabledOrInvalidIsLeftAlone);
    violates(Mutation::SkipDrain, none, Invariant::NodeIsDrainedBeforeDeletion);
    violates(Mutation::DeleteBootstrapFirst, none, Invariant::MachineIsDeletedFirst);
    violates(Mutation::DeleteUnmanagedMachine, FaultClass::OtherClients, Invariant::UnmanagedObjectIsNotTouched);
    violates(Mutation::DeleteUnmanagedBootstrap, FaultClass::OtherClients, Invariant::UnmanagedObjectIsNotTouched);
    finds(Mutation::IgnoreNameConflict, FaultClass::OtherClients, ENDS_AS_EXPECTED);
    let unreachable = FaultClass::WorkloadCluster;
    violates(Mutation::TreatUnreachableAsAbsent, unreachable, Invariant::NodeIsDrainedBeforeDeletion);
    violates(Mutation::TreatUnidentifiedAsAbsent, unreachable, Invariant::NodeIsDrainedBeforeDeletion);
    finds(Mutation::WaitForUnreachable, unreachable, ENDS_AS_EXPECTED);
    violates(Mutation::ReuseLeftovers, FaultClass::Machine, Invariant::MachineGetsNewChildren);
    finds(Mutation::KeepFailedMachine, FaultClass::Machine, ENDS_AS_EXPECTED);
    violates(Mutation::CreateUnusable, FaultClass::Machine, Invariant::MachineIsCreatedOnlyIfUsable);
    violates(Mutation::CreateUnusable, FaultClass::Cluster, Invariant::MachineIsCreatedOnlyIfUsable);
    violates(Mutation::IgnorePause, FaultClass::Cluster, Invariant::PausedClusterIsLeftAlone);
    finds(Mutation::KeepFutureStart, FaultClass::Clock, ENDS_AS_EXPECTED);
    violates(Mutation::RemoveInvalid, FaultClass::Spec, Invariant::DisabledOrInvalidIsLeftAlone);
}
