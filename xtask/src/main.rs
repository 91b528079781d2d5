//! Repository commands: `cargo xtask <command>`. They need Rust and Go, and bring everything else themselves.

mod bench;
mod generate;
mod lint;
mod sandbox;
mod shell;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fivespot_cli_support::{Failure, chain, finish, parse_args};

/// Repository commands of 5-Spot
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole product on this machine, with two machines to play with, until Ctrl-C
    Sandbox,
    /// Check everything that CI checks: generated files, lints, and every test on the real control plane
    Test(test::Arguments),
    /// Write the generated files: the CRD and the API reference
    Gen(generate::Arguments),
    /// Check formatting, lints, documentation links and the licences of dependencies
    Lint,
    /// Measure, and print the figures
    Bench,
}

fn main() -> ExitCode {
    let result = match parse_args::<Arguments>().command {
        Command::Sandbox => sandbox::run(),
        Command::Test(arguments) => test::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Lint => lint::run(),
        Command::Bench => bench::run(),
    };
    finish(result.map_err(|error| Failure::Failed(chain(error.as_ref()))))
}
