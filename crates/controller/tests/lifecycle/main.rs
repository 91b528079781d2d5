//! The life of machines, on a real API server with the real Cluster API, under the permissions that are shipped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod day;
mod deletion;
mod drain;
mod phases;
mod process;
mod troubles;
mod versions;
mod workload;
