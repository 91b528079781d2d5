//! `cargo xtask test`: everything that CI checks. Needs only Rust and Go.

mod cold;
mod summary;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use clap::Args;
use fivespot_testbed::RealNode;
use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};

use crate::generate;
use crate::lint::LINTS;
use crate::shell::{cargo, display};
use summary::Summary;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Build everything from scratch: use empty Go, Cargo, target and testbed directories, and remove them afterwards
    #[arg(long)]
    cold: bool,

    /// Run tests of large numbers with the numbers that are promised, such as 10,000 objects; takes much longer
    #[arg(long, conflicts_with = "cold")]
    long: bool,

    /// Run only the tests whose name contains this, without lints
    #[arg(conflicts_with = "cold")]
    filter: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.cold {
        return cold::run();
    }
    let mut summary = Summary::default();
    if arguments.filter.is_none() {
        summary.check("generated files", "comparing CRD, policy, chart and reference with the code", generate::check);
        for lint in LINTS {
            summary.check(lint.name, lint.description, lint.run);
        }
    }
    if arguments.filter.is_none()
        && let Err(reason) = RealNode::prepare()
    {
        summary.skip("tests on a real node", &reason.to_string());
    }
    // Without the testbed most tests would fail one after the other.
    let building = "building Kubernetes, Cluster API, KWOK, Helm and promtool (first run only, takes minutes)";
    if summary.check("testbed", building, build_testbed) {
        test_workspace(arguments, &mut summary)?;
        test_traces(arguments, &mut summary)?;
    }
    if std::env::var_os("CI").is_some_and(|it| it == "true") {
        summary.fail_on_skips();
    }
    println!("\n{summary}");
    // Exits without an error message, so that the counts are the last line.
    if summary.failed() > 0 {
        std::process::exit(1)
    }
    Ok(())
}

/// How many tests of one binary run in parallel.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Runs the tests of the workspace.
fn test_workspace(arguments: &Arguments, summary: &mut Summary) -> Result<()> {
    println!("\n==> tests: compiling and running all tests of the workspace");
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(&arguments.filter);
    if arguments.long {
        // Shows what the tests measure.
        command.env(fivespot_testbed::LONG, "1").args(["--", "--show-output"]);
    }
    cargo_test(command, summary)
}

/// What tests of the optional feature `otlp` have in their names.
const TRACES: &str = "trace";

/// Runs the tests of the controller's optional feature.
fn test_traces(arguments: &Arguments, summary: &mut Summary) -> Result<()> {
    if arguments.filter.as_ref().is_some_and(|filter| !filter.contains(TRACES)) {
        return Ok(());
    }
    println!("\n==> tests: compiling the controller with traces and running the tests of the feature");
    let targets = ["--bin", "5spot", "--test", "traces", "--locked", "--no-fail-fast"];
    let mut command = cargo(&["test", "--package", "fivespot-controller", "--features", "otlp"]);
    command.args(targets).arg(arguments.filter.as_deref().unwrap_or(TRACES));
    cargo_test(command, summary)
}

/// Runs tests, prints their output and counts their results.
fn cargo_test(mut command: Command, summary: &mut Summary) -> Result<()> {
    command.stdout(Stdio::piped());
    // Most tests wait for servers, not for a core.
    if std::env::var_os(TEST_THREADS).is_none() {
        command.env(TEST_THREADS, "4");
    }
    let line = display(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start {line}"))?;
    let output = child.stdout.take().context("cargo test has no standard output")?;
    let before = summary.clone();
    for printed in BufReader::new(output).split(b'\n') {
        let printed = printed.with_context(|| format!("cannot read the output of {line}"))?;
        let printed = String::from_utf8_lossy(&printed);
        println!("{printed}");
        summary.parse_line(&printed);
    }
    let status = child.wait().with_context(|| format!("cannot wait for {line}"))?;
    // A binary that crashed or did not compile reports no failed test.
    if !status.success() && summary.failed() == before.failed() {
        summary.fail(&line);
    }
    if status.success() && summary.passed() == before.passed() {
        summary.fail("no test ran: check the filter");
    }
    Ok(())
}

/// Builds the Go programs with visible progress, unless they are already built.
fn build_testbed() -> Result<()> {
    let mut printer = ProgressPrinter::new();
    let built = Artifacts::ensure(&mut |progress| printer.show(&progress))?;
    built.helm(&mut |progress| printer.show(&progress))?;
    built.promtool(&mut |progress| printer.show(&progress))?;
    Ok(())
}
