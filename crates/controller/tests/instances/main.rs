//! Several instances of the controller, with and without Leases, on a real API server.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod env;
mod failover;
mod fixed_shards;
mod rollout;
