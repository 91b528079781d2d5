//! Checks that two instances never act on the same object, in every order of their requests, watch events, delays, stops and
//! crashes, with the shipped [`LeaseTable`].

#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use std::collections::BTreeMap;
use std::time::Duration;

use fivespot_planner::shards::lease::{
    Identity, Instance, LeaseAction, LeaseRecord, LeaseTable, Partition, Term, Uptime,
};
use stateright::{Checker as _, HasDiscoveries, Model, Property};

/// Three units of time, so that a Lease is renewed after one and written under for two.
const LEASE_DURATION: Uptime = Duration::from_secs(3);
const TICK: Duration = Duration::from_secs(1);
/// Shards and partitions are small numbers, so two objects are enough for each shard to have one.
const OBJECTS: u32 = 2;

/// What is explored: the instance count of each of two instances, and the limits of the exploration.
#[derive(Clone, Copy)]
struct Exploration {
    /// Id and count of each instance.
    instances: [(u32, u32); 2],
    max_time: u64,
    crashes: u8,
    lost_responses: u8,
    order: Order,
    mutation: Option<Mutation>,
}

/// In which order an instance writes its Leases. With a fixed order, a response arrives when its request does, so that more
/// shards can be explored; other orders and delays are explored with one shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Any,
    Ascending,
    /// Instances with different counts begin with different shards.
    Descending,
}

/// A defect that the check has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mutation {
    /// A term counts from the response to the renewal instead of from its request.
    TermFromResponse,
    /// A Lease is written without its version.
    NoResourceVersion,
    /// An instance acts before the watch has confirmed its acquisition.
    Unconfirmed,
    /// Another instance's Lease has lapsed when its time for writes is over, although requests may be in flight.
    EarlyLapse,
}

/// The API server and two instances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    store: BTreeMap<u32, LeaseRecord>,
    processes: [Process; 2],
    crashes: u8,
    lost_responses: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    table: LeaseTable,
    /// Watch events that have not been delivered.
    events: Vec<(u32, LeaseRecord)>,
    request: Option<Request>,
    restarts: u32,
    /// By shard, until when a write of this process, or of one before it, can arrive.
    arriving: BTreeMap<u32, Uptime>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    shard: u32,
    action: LeaseAction,
    record: LeaseRecord,
    expected_version: Option<u64>,
    sent_at: Uptime,
    /// `None` before the request arrived.
    response: Option<Response>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Response {
    Written(LeaseRecord),
    Conflict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Transition {
    Tick,
    /// The watch delivers all events so far. One that delivers less is a watch that delivered earlier.
    Deliver(usize),
    Send(usize, u32, LeaseAction),
    Arrive(usize),
    Respond(usize),
    LoseResponse(usize),
    Crash(usize),
}

fn instance(id: u32, count: u32, host: usize, restarts: u32) -> Instance {
    Instance {
        id,
        identity: Identity::new(id, &host.to_string(), restarts),
        partition: Partition { count, namespace: String::new() },
        lease_duration: LEASE_DURATION,
    }
}

impl State {
    fn uptime(&self) -> Uptime {
        Duration::from_secs(self.now)
    }

    /// The terms under which a process acts. A stopped process checks the time when it continues.
    fn term(&self, process: usize, shard: u32) -> Option<Term> {
        self.processes[process].table.term(shard, self.uptime())
    }

    fn count(&self, process: usize) -> u32 {
        self.processes[process].table.instance().partition.count
    }

    fn acts(&self, process: usize, object: u32) -> bool {
        self.term(process, object % self.count(process)).is_some()
    }

    /// Whether a write that a process sent while it held the shard can still arrive.
    fn arrives(&self, process: usize, object: u32) -> bool {
        let shard = object % self.count(process);
        self.processes[process].arriving.get(&shard).is_some_and(|until| self.uptime() < *until)
    }

    /// Two instances act on one object at the same time, or one acts while a write of the other can arrive.
    fn is_violated(&self) -> bool {
        (0..OBJECTS).any(|object| {
            [(0, 1), (1, 0)]
                .into_iter()
                .any(|(one, other)| self.acts(one, object) && (self.acts(other, object) || self.arrives(other, object)))
        })
    }

    fn record_writes(&mut self) {
        let now = self.uptime();
        for process in 0..2 {
            self.processes[process].arriving.retain(|_, until| now < *until);
            for shard in 0..self.count(process) {
                if let Some(term) = self.term(process, shard) {
                    self.processes[process].arriving.insert(shard, term.expires_at);
                }
            }
        }
    }

    fn apply(&mut self, transition: Transition, mutation: Option<Mutation>) {
        let now = self.uptime();
        match transition {
            Transition::Tick => self.now += 1,
            Transition::Deliver(process) => {
                let process = &mut self.processes[process];
                for (shard, record) in std::mem::take(&mut process.events) {
                    process.table.watched(shard, record, now);
                }
            }
            Transition::Send(process, shard, action) => self.send(process, shard, action, mutation),
            Transition::Arrive(process) => self.arrive(process),
            Transition::Respond(process) => self.respond(process, mutation),
            Transition::LoseResponse(process) => {
                self.processes[process].request = None;
                self.lost_responses -= 1;
            }
            Transition::Crash(process) => {
                self.crashes -= 1;
                self.restart(process);
            }
        }
        self.record_writes();
    }

    /// A new process starts by listing all Leases.
    fn restart(&mut self, process: usize) {
        let (now, store) = (self.uptime(), self.store.clone());
        let (host, process) = (process, &mut self.processes[process]);
        process.restarts += 1;
        let Instance { id, partition, .. } = process.table.instance();
        process.table = LeaseTable::new(instance(*id, partition.count, host, process.restarts));
        process.table.resynced(store, now);
        process.events.clear();
        process.request = None;
    }

    fn send(&mut self, process: usize, shard: u32, action: LeaseAction, mutation: Option<Mutation>) {
        let now = self.uptime();
        let process = &mut self.processes[process];
        let known = process.table.record(shard).cloned();
        let Instance { identity, partition, lease_duration, .. } = process.table.instance().clone();
        let mut record = known.clone().unwrap_or(LeaseRecord {
            version: 0,
            holder: None,
            transitions: 0,
            renewal: String::new(),
            partition: None,
            duration: lease_duration,
            requested_by: None,
        });
        match action {
            LeaseAction::Acquire => {
                record.transitions += 1;
                record = LeaseRecord {
                    holder: Some(identity),
                    partition: Some(partition),
                    renewal: now.as_secs().to_string(),
                    requested_by: None,
                    // What other instances go by.
                    duration: if mutation == Some(Mutation::EarlyLapse) { TICK * 2 } else { lease_duration },
                    ..record
                };
            }
            LeaseAction::Renew => record.renewal = now.as_secs().to_string(),
            LeaseAction::Request => record.requested_by = Some(identity),
            LeaseAction::Release => {
                record.holder = None;
                process.table.release(shard);
                // Sent when no write is in flight.
                process.arriving.remove(&shard);
            }
        }
        let expected_version = known.map(|it| it.version).filter(|_| mutation != Some(Mutation::NoResourceVersion));
        process.request = Some(Request { shard, action, record, expected_version, sent_at: now, response: None });
    }

    fn arrive(&mut self, process: usize) {
        let Some(request) = &mut self.processes[process].request else { return };
        let stored = self.store.get(&request.shard).map(|it| it.version);
        let is_conflict = request.expected_version != stored
            && (request.expected_version.is_some() || request.record.version == 0 && stored.is_some());
        if is_conflict {
            request.response = Some(Response::Conflict);
            return;
        }
        let record = LeaseRecord { version: stored.unwrap_or_default() + 1, ..request.record.clone() };
        request.response = Some(Response::Written(record.clone()));
        let shard = request.shard;
        self.store.insert(shard, record.clone());
        self.processes.iter_mut().for_each(|process| process.events.push((shard, record.clone())));
    }

    fn respond(&mut self, process: usize, mutation: Option<Mutation>) {
        let (now, store) = (self.uptime(), self.store.clone());
        let process = &mut self.processes[process];
        let Some(Request { shard, action, sent_at, response, .. }) = process.request.take() else { return };
        let sent_at = if mutation == Some(Mutation::TermFromResponse) { now } else { sent_at };
        match (response, action) {
            (Some(Response::Written(record)), LeaseAction::Acquire) => {
                process.table.acquired(shard, record.clone(), sent_at);
                if mutation == Some(Mutation::Unconfirmed) {
                    process.table.watched(shard, record, now);
                }
            }
            (Some(Response::Written(record)), LeaseAction::Renew) => process.table.renewed(shard, record, sent_at),
            (Some(Response::Written(record)), LeaseAction::Request | LeaseAction::Release) => {
                process.table.observed(shard, record, now);
            }
            // After a conflict the Lease is read.
            (Some(Response::Conflict) | None, _) => {
                if let Some(record) = store.get(&shard) {
                    process.table.observed(shard, record.clone(), now);
                }
            }
        }
    }

    /// Runs both instances without delay, for long enough that every Lease can lapse.
    fn settle(mut self) -> State {
        for _ in 0..12 {
            for _ in 0..12 {
                for process in 0..2 {
                    self.arrive(process);
                    self.respond(process, None);
                    self.apply(Transition::Deliver(process), None);
                    let decision = self.processes[process].table.decide(self.uptime());
                    if let Some((shard, action)) = decision.actions.into_iter().next() {
                        self.apply(Transition::Send(process, shard, action), None);
                    }
                }
            }
            self.apply(Transition::Tick, None);
        }
        self
    }

    /// Whether every object has an instance that acts on it, and each instance the shard that it prefers.
    fn is_settled(&self) -> bool {
        let is_settled = |object: u32| (0..2).any(|process| self.acts(process, object));
        let is_preferred = |process: usize| {
            let Instance { id, partition, .. } = self.processes[process].table.instance();
            let is_shared = self.processes.iter().any(|other| {
                let it = other.table.instance();
                it.partition != *partition
                    || (it.id == *id && it.identity != self.processes[process].table.instance().identity)
            });
            is_shared || *id >= partition.count || self.term(process, *id).is_some()
        };
        (0..OBJECTS).all(is_settled) && is_preferred(0) && is_preferred(1)
    }
}

impl Model for Exploration {
    type State = State;
    type Action = Transition;

    fn init_states(&self) -> Vec<State> {
        let process = |host: usize| Process {
            table: LeaseTable::new(instance(self.instances[host].0, self.instances[host].1, host, 0)),
            events: Vec::new(),
            request: None,
            restarts: 0,
            arriving: BTreeMap::new(),
        };
        vec![State {
            now: 0,
            store: BTreeMap::new(),
            processes: [process(0), process(1)],
            crashes: self.crashes,
            lost_responses: self.lost_responses,
        }]
    }

    fn actions(&self, state: &State, transitions: &mut Vec<Transition>) {
        if state.is_violated() {
            return;
        }
        if state.now < self.max_time {
            transitions.push(Transition::Tick);
        }
        for (index, process) in state.processes.iter().enumerate() {
            if !process.events.is_empty() {
                transitions.push(Transition::Deliver(index));
            }
            match &process.request {
                None => {
                    let decision = process.table.decide(state.uptime());
                    let sent = decision.actions.into_iter().map(|(shard, it)| Transition::Send(index, shard, it));
                    match self.order {
                        Order::Any => transitions.extend(sent),
                        Order::Ascending => transitions.extend(sent.take(1)),
                        Order::Descending => transitions.extend(sent.rev().take(1)),
                    }
                }
                Some(Request { response: None, .. }) => transitions.push(Transition::Arrive(index)),
                Some(_) => {
                    transitions.push(Transition::Respond(index));
                    if state.lost_responses > 0 {
                        transitions.push(Transition::LoseResponse(index));
                    }
                }
            }
            if state.crashes > 0 {
                transitions.push(Transition::Crash(index));
            }
        }
    }

    fn next_state(&self, state: &State, transition: Transition) -> Option<State> {
        let mut next = state.clone();
        next.apply(transition, self.mutation);
        if let (Transition::Arrive(process), true) = (transition, self.order != Order::Any) {
            next.apply(Transition::Respond(process), self.mutation);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two instances act on one object", |_, state: &State| !state.is_violated()),
            Property::always(
                "without disturbances, every shard is held",
                |exploration: &Exploration, state: &State| {
                    let is_quiet = state.processes.iter().all(|it| it.request.is_none() && it.events.is_empty());
                    !is_quiet
                        || exploration.mutation.is_some()
                        || state.is_violated()
                        || state.clone().settle().is_settled()
                },
            ),
        ]
    }
}

/// One shard, which the second instance holds only for the first one.
const SAME_COUNT: Exploration = Exploration {
    instances: [(0, 1), (1, 1)],
    max_time: 4,
    crashes: 0,
    lost_responses: 0,
    order: Order::Any,
    mutation: None,
};
const SAME_ID: Exploration = Exploration { instances: [(0, 1), (0, 1)], ..SAME_COUNT };
const OTHER_COUNT: Exploration =
    Exploration { instances: [(0, 1), (1, 2)], order: Order::Descending, max_time: 2, ..SAME_COUNT };

fn check(exploration: Exploration, min_states: usize) {
    let checker = exploration.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() >= min_states, "only {} states", checker.unique_state_count());
}

fn finds(mutation: Mutation, exploration: Exploration) {
    let exploration = Exploration { mutation: Some(mutation), ..exploration };
    let checker = exploration.checker().threads(2).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    assert!(checker.discovery("no two instances act on one object").is_some(), "{mutation:?} is not found");
}

#[test]
fn instances_with_the_same_count_never_act_on_one_object() {
    check(SAME_COUNT, 800_000);
}

#[test]
fn processes_with_the_same_id_never_act_on_one_object() {
    check(Exploration { crashes: 1, ..SAME_ID }, 400_000);
    check(Exploration { lost_responses: 1, ..SAME_ID }, 1_200_000);
}

#[test]
fn instances_with_different_counts_never_act_on_one_object() {
    check(OTHER_COUNT, 100_000);
    check(Exploration { order: Order::Ascending, max_time: 4, ..OTHER_COUNT }, 450_000);
}

#[test]
fn term_that_begins_with_the_response_is_found() {
    finds(Mutation::TermFromResponse, SAME_ID);
}

#[test]
fn write_without_resource_version_is_found() {
    finds(Mutation::NoResourceVersion, SAME_ID);
}

#[test]
fn action_before_confirmation_is_found() {
    finds(Mutation::Unconfirmed, OTHER_COUNT);
}

#[test]
fn lapse_while_writes_are_in_flight_is_found() {
    finds(Mutation::EarlyLapse, SAME_ID);
}
