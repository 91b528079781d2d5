//! Repository tasks: `cargo xtask <command>`. They need only Rust and Go.

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

/// Repository tasks of 5-Spot
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole product on this machine, with two example machines, until Ctrl-C
    Sandbox,
    /// Run all CI checks: generated files, lints, and every test on a real control plane
    Test(test::Arguments),
    /// Write the generated files: CRD, admission policy, chart files and reference
    Gen(generate::Arguments),
    /// Check formatting, clippy lints, rustdoc and the licenses of dependencies
    Lint,
    /// Run the benchmarks and print the results
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = match parse_args::<Arguments>().command {
        Command::Sandbox => sandbox::run(),
        Command::Test(arguments) => test::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Lint => lint::run(),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    finish(result.map_err(|error| Failure::Failed(chain(error.as_ref()))))
}
