//! `cargo xtask test --cold`: a run with empty caches, as on a new machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::cargo;

/// Environment variables of caches, and the subdirectories that replace them.
const CACHES: [(&str, &str); 5] = [
    ("GOMODCACHE", "go-modules"),
    ("GOCACHE", "go-build"),
    ("CARGO_HOME", "cargo-home"),
    ("CARGO_TARGET_DIR", "target"),
    ("FIVESPOT_TESTBED", "testbed"),
];

/// The file with the process ID of the run that uses the directory.
const OWNER: &str = "owner";
/// Prefix of the directory of a cold run.
const PREFIX: &str = "5spot-cold-";

/// Runs `cargo xtask test` with empty caches, and removes them.
pub(super) fn run() -> Result<()> {
    let temporary = std::env::temp_dir();
    remove_abandoned(&temporary);
    let directory =
        tempfile::Builder::new().prefix(PREFIX).tempdir().context("cannot create a directory for the cold run")?;
    println!("Cold run in {} (needs about 15 GB; set TMPDIR to use another disk)", directory.path().display());
    fs::write(directory.path().join(OWNER), std::process::id().to_string())
        .context("cannot claim the directory of the cold run")?;
    let mut command = cargo(&["xtask", "test"]);
    for (variable, name) in CACHES {
        let path = directory.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        command.env(variable, path);
    }
    let status = command.status().context("cannot start cargo xtask test")?;
    remove(directory.path()).context("cannot remove the directory of the cold run")?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}

/// Removes the directories of killed cold runs.
fn remove_abandoned(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten().map(|it| it.path());
    for path in entries.filter(|it| it.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))) {
        let owner = fs::read_to_string(path.join(OWNER)).unwrap_or_default();
        // If another process has that ID now, the directory stays until a later run.
        if !owner.is_empty() && !Path::new("/proc").join(&owner).exists() && remove(&path).is_ok() {
            println!("Removed {} of a killed run", path.display());
        }
    }
}

/// Files in Go's module cache are read-only, so Go has to remove them.
fn remove(directory: &Path) -> Result<()> {
    let cleaned =
        Command::new("go").args(["clean", "-modcache"]).env("GOMODCACHE", directory.join("go-modules")).status();
    cleaned.context("cannot start go clean -modcache")?;
    Ok(fs::remove_dir_all(directory)?)
}
