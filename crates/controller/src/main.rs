//! `5spot`: adds machines to Cluster API clusters while their schedule is open and removes them when it closes.
//!
//! - [`run`]: start-up and shutdown of the process.
//! - [`reconciler`]: one reconcile of one object, from the watch event to the status patch. Start reading here.
//! - [`runtime`]: work queue, caches, watches, requests, events, metrics, health.
//! - [`clusters`]: connections to workload clusters, their Nodes and the reclaim agents' configuration.
//! - [`capi`]: typed access to Cluster API objects.
//! - [`object`]: decodes ScheduledMachines, one by one and field by field.
//! - [`telemetry`]: logs and traces.
//!
//! Dependencies point downwards only: `reconciler` uses `clusters` and `capi`, `capi` uses `object`, all of them use `runtime`.

mod capi;
mod clusters;
mod config;
mod object;
mod reconciler;
mod run;
mod runtime;
mod telemetry;

use std::process::ExitCode;

use fivespot_cli_support::{finish, parse_args};

fn main() -> ExitCode {
    finish(run::run(&parse_args()))
}
