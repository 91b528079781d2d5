//! `5spot`: puts machines into Cluster API clusters while their schedule is open, and takes them out when it closes.
//!
//! One pass over one object is [`reconcile`]: observe, decide, act, report. All decisions are made in `fivespot-planner`,
//! which has no client; all reads are in [`observe`], all writes in [`act`] and [`report`].

mod act;
mod announce;
mod cache;
mod client;
mod cluster_api;
mod context;
mod discovery;
mod lock;
mod log;
mod machines;
mod metrics;
mod observe;
mod options;
mod pauses;
mod queue;
mod reconcile;
mod report;
mod run;
mod serve;
mod trouble;
mod urgency;
mod watch;
mod workload;

use std::process::ExitCode;

use fivespot_cli_support::{finish, parse_args};

fn main() -> ExitCode {
    finish(run::run(&parse_args()))
}
