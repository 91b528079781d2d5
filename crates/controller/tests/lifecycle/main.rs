//! The life of machines, on a real API server with the real Cluster API, under the permissions that are shipped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod clusters;
mod conflicts;
mod day;
mod deletion;
mod drain;
mod hardened;
mod kubeconfigs;
mod metrics;
mod phases;
mod process;
mod reclaim;
mod strangers;
mod taints;
mod tenants;
mod troubles;
mod versions;
mod workload;
