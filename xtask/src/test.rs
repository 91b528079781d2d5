//! `cargo xtask test`: everything that CI checks, from nothing but Rust and Go.

mod cold;
mod tally;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result};
use clap::Args;
use fivespot_testbed::RealNode;
use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};

use crate::generate;
use crate::lint::LINTS;
use crate::shell::{cargo, tell};
use tally::Tally;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Build everything anew: run with empty Go, Cargo, target and testbed directories, and remove them afterwards
    #[arg(long)]
    cold: bool,

    /// Run only the tests whose name contains this, and no lints
    #[arg(conflicts_with = "cold")]
    filter: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.cold {
        return cold::run();
    }
    let mut tally = Tally::default();
    if arguments.filter.is_none() {
        tally.check("generated files", generate::check);
        for (name, lint) in LINTS {
            tally.check(name, lint);
        }
    }
    if arguments.filter.is_none()
        && let Err(reason) = RealNode::prepare()
    {
        tally.skip("tests on a real node", &reason.to_string());
    }
    // Without it most tests could only say, one after the other, that it is not there.
    if tally.check("testbed", build_testbed) {
        cargo_test(arguments.filter.as_deref(), &mut tally)?;
    }
    if std::env::var_os("CI").is_some_and(|it| it == "true") {
        tally.refuse_skips();
    }
    println!("\n{tally}");
    // The count is the last line, so the exit code alone says the rest.
    if tally.failures() > 0 {
        std::process::exit(1)
    }
    Ok(())
}

/// How many tests of one binary run at once, where the caller does not say.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Runs every test of the workspace and counts what each binary says of itself.
fn cargo_test(filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    println!("\n==> tests");
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(filter).stdout(Stdio::piped());
    // Most tests wait for servers rather than for a core.
    if std::env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, "4");
    }
    let told = tell(&command);
    let mut child = command.spawn().with_context(|| format!("starting {told}"))?;
    let output = child.stdout.take().context("the output of cargo test")?;
    let before = tally.clone();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("reading what {told} prints"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.read(&line);
    }
    let status = child.wait().with_context(|| format!("waiting for {told}"))?;
    // A binary that crashed, or that did not compile, counts no test of its own.
    if !status.success() && tally.failures() == before.failures() {
        tally.fail(&told);
    }
    if status.success() && tally.passes() == before.passes() {
        tally.fail("no test ran: is the filter right?");
    }
    Ok(())
}

/// The Go programs, built once; the longest wait that a newcomer has, so it is shown.
fn build_testbed() -> Result<()> {
    let mut printer = ProgressPrinter::new();
    let built = Artifacts::ensure(&mut |progress| printer.show(&progress))?;
    built.helm(&mut |progress| printer.show(&progress))?;
    built.promtool(&mut |progress| printer.show(&progress))?;
    Ok(())
}
