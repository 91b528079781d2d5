//! `cargo xtask lint`.

use anyhow::Result;

use crate::shell::{self, cargo};
use crate::tools;

/// A name, and what finds whether it holds.
type Lint = (&'static str, fn() -> Result<()>);

/// Every lint, in the order of what fails fastest.
pub(crate) const LINTS: [Lint; 4] =
    [("formatting", formatting), ("clippy", clippy), ("documentation", documentation), ("dependencies", dependencies)];

pub(crate) fn run() -> Result<()> {
    LINTS.iter().try_for_each(|(_, lint)| lint())
}

fn formatting() -> Result<()> {
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<()> {
    shell::run(&mut cargo(&[
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn documentation() -> Result<()> {
    shell::run(
        cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--locked", "--document-private-items"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// Licences, bans and sources. Advisories need a database from the network and are left to the hosted CI.
fn dependencies() -> Result<()> {
    let deny = tools::cargo_deny()?;
    shell::run(
        std::process::Command::new(deny)
            .args([
                "--workspace",
                "--locked",
                "--log-level",
                "warn",
                "check",
                "--hide-inclusion-graph",
                "licenses",
                "bans",
                "sources",
            ])
            .current_dir(shell::root()),
    )
}
