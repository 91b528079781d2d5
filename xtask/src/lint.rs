//! `cargo xtask lint`.

use anyhow::Result;

use crate::shell::{self, cargo};
use crate::tools;

pub(crate) struct Lint {
    pub(crate) name: &'static str,
    /// Announced before the lint runs.
    pub(crate) description: &'static str,
    pub(crate) run: fn() -> Result<()>,
}

/// Every lint, the fastest first.
pub(crate) const LINTS: [Lint; 4] = [
    Lint { name: "formatting", description: "cargo fmt --check", run: formatting },
    Lint { name: "clippy", description: "compiling the workspace with clippy, denying warnings", run: clippy },
    Lint { name: "documentation", description: "building rustdoc, denying warnings", run: documentation },
    Lint {
        name: "dependencies",
        description: "checking licenses, bans and sources with cargo-deny",
        run: dependencies,
    },
];

pub(crate) fn run() -> Result<()> {
    LINTS.iter().try_for_each(|lint| {
        shell::step(&format!("{}: {}", lint.name, lint.description));
        (lint.run)()
    })
}

fn formatting() -> Result<()> {
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))
}

/// With the controller's optional features too, which the workspace does not enable.
fn clippy() -> Result<()> {
    let deny = ["--all-targets", "--locked", "--", "--deny", "warnings"];
    shell::run(cargo(&["clippy", "--workspace"]).args(deny))?;
    shell::run(cargo(&["clippy", "--package", "fivespot-controller", "--features", "otlp"]).args(deny))
}

fn documentation() -> Result<()> {
    shell::run(
        cargo(&["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// Advisories need a database from the network, so only the hosted CI checks them.
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
