//! `kubectl 5spot`: what a schedule means, in words, numbers and a picture, and whether a manifest is right.

mod cluster;
mod lint;
mod manifest;
mod output;
mod picture;
mod subject;
mod timeline;
mod windows;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fivespot_cli_support::{Failure, arguments, finish};
use jiff::Timestamp;

/// Shows when ScheduledMachines are in their cluster, and what is wrong with them.
#[derive(Debug, Parser)]
#[command(name = "kubectl-5spot", bin_name = "kubectl 5spot", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Windows(windows::Arguments),
    Timeline(timeline::Arguments),
    Lint(lint::Arguments),
}

fn main() -> ExitCode {
    // The only clock of this program: everything below is told what time it is, in whole seconds as Kubernetes has it.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    finish(run(arguments::<Arguments>().command, now))
}

fn run(command: Command, now: Timestamp) -> Result<(), Failure> {
    match command {
        Command::Windows(arguments) => windows::run(&arguments, now),
        Command::Timeline(arguments) => timeline::run(&arguments, now),
        Command::Lint(arguments) => lint::run(&arguments),
    }
}
