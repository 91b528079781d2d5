//! A simulated cluster with one ScheduledMachine, small enough to be explored exhaustively.
//!
//! It has the API servers with the object, its children, and a Node with one pod; the controller, which reads through
//! caches, executes the plans of the shipped `decide` request by request and can crash between any two; and the other
//! actors: Cluster API, the kubelet, the owner of the machine, and other clients.
//!
//! Two tests use it. `model_check` explores all interleavings from one initial state, with caches that lag.
//! `initial_states` starts from thousands of states, runs one interleaving, and crashes at every request.
//!
//! Assumptions about the code that executes a plan:
//!
//! - A reconcile never decides from an object older than what this process has written: if a response was lost, the
//!   object is read first.
//! - An instance that takes over the object from another one reads it before it executes the first plan that has steps, and
//!   decides again. Requests of the other instance no longer arrive.
//! - A cached Node that belongs to an earlier Machine counts as not cached.
//! - An object may change its owner between the read and the request: the request carries the uid, which stays the same.
//! - The lanes of a force removal are sent one after the other, and the first failure ends the reconcile.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of the simulation")]

mod actors;
pub(crate) mod builders;
mod expected;
pub(crate) mod fixtures;
mod invariants;
mod mutations;
mod observe;
mod quiescence;
mod reconcile;
mod request;
mod server;
mod state;
mod time;

pub(crate) use expected::unexpected;
pub(crate) use fixtures::{EXISTING_MACHINE, NAME, NAMESPACE, Schedule};
pub(crate) use invariants::Invariant;
pub(crate) use mutations::Mutation;
pub(crate) use observe::{Decided, View};
pub(crate) use quiescence::{MAX_RECONCILES, Next};
pub(crate) use reconcile::Reconcile;
pub(crate) use request::{NodeRequest, Request};
pub(crate) use server::Response;
pub(crate) use state::{
    AgentState, Budget, Caches, ConfigState, Connection, Failure, IntentState, MachineState, NodeState, Object, Owner,
    PodState, ProviderState, Reclaim, Requested, Servers, Standby, World,
};
pub(crate) use time::{DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT, Seconds};
