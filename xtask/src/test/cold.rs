//! A run as a newcomer has it: nothing built, nothing downloaded.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::cargo;

/// What a cold run must not find warm, and where it finds it instead.
const DIRECTORIES: [(&str, &str); 5] = [
    ("GOMODCACHE", "go-modules"),
    ("GOCACHE", "go-build"),
    ("CARGO_HOME", "cargo-home"),
    ("CARGO_TARGET_DIR", "target"),
    ("FIVESPOT_TESTBED", "testbed"),
];

/// Runs `cargo xtask test` with empty directories, and removes them.
pub(super) fn run() -> Result<()> {
    let directory = tempfile::Builder::new().prefix("5spot-cold-").tempdir().context("a directory for a cold run")?;
    println!("a cold run, in {}", directory.path().display());
    let mut command = cargo(&["xtask", "test"]);
    for (variable, name) in DIRECTORIES {
        let path = directory.path().join(name);
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        command.env(variable, path);
    }
    let status = command.status().context("starting cargo xtask test")?;
    remove(directory.path()).context("removing what the cold run left")?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}

/// Go makes its module cache read-only, and only Go knows how to take it back.
fn remove(directory: &Path) -> Result<()> {
    let cleaned =
        Command::new("go").args(["clean", "-modcache"]).env("GOMODCACHE", directory.join("go-modules")).status();
    cleaned.context("starting go clean -modcache")?;
    Ok(fs::remove_dir_all(directory)?)
}
