//! The subcommands, one per file. To add one, add its module and a variant of [`Command`].

mod lint;
mod timeline;
mod windows;

use clap::Subcommand;
use fivespot_cli_support::Failure;
use jiff::Timestamp;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Windows(windows::Arguments),
    Timeline(timeline::Arguments),
    Lint(lint::Arguments),
}

impl Command {
    pub(crate) fn run(&self, now: Timestamp) -> Result<(), Failure> {
        match self {
            Command::Windows(arguments) => windows::run(arguments, now),
            Command::Timeline(arguments) => timeline::run(arguments, now),
            Command::Lint(arguments) => lint::run(arguments),
        }
    }
}
