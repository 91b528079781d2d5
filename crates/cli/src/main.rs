//! `kubectl 5spot`: previews schedules and validates manifests.

mod cluster;
mod commands;
mod manifest_file;
mod render;
mod target;
mod timeline_render;

use std::process::ExitCode;

use clap::Parser;
use fivespot_cli_support::{finish, parse_args};
use jiff::Timestamp;

/// Preview the schedules of ScheduledMachines, and validate manifests
#[derive(Debug, Parser)]
#[command(name = "kubectl-5spot", bin_name = "kubectl 5spot", version)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = parse_args::<Arguments>();
    // The only clock read of the program. Whole seconds, like timestamps in Kubernetes.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    finish(arguments.command.run(now))
}
