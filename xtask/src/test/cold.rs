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

/// The file that names the process a directory belongs to.
const OWNER: &str = "owner";
/// The beginning of the name of a directory for a cold run.
const PREFIX: &str = "5spot-cold-";

/// Runs `cargo xtask test` with empty directories, and removes them.
pub(super) fn run() -> Result<()> {
    let temporary = std::env::temp_dir();
    sweep(&temporary);
    let directory = tempfile::Builder::new().prefix(PREFIX).tempdir().context("a directory for a cold run")?;
    println!("a cold run, in {} (about 15 GB; TMPDIR says where)", directory.path().display());
    fs::write(directory.path().join(OWNER), std::process::id().to_string()).context("claiming the directory")?;
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

/// Removes what a cold run left that was killed.
fn sweep(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten().map(|it| it.path());
    for path in entries.filter(|it| it.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))) {
        let owner = fs::read_to_string(path.join(OWNER)).unwrap_or_default();
        // A process of that number may be another's by now; then the directory stays until it ends.
        if !owner.is_empty() && !Path::new("/proc").join(&owner).exists() && remove(&path).is_ok() {
            println!("removed {}, which a killed run left", path.display());
        }
    }
}

/// Go makes its module cache read-only, and only Go knows how to take it back.
fn remove(directory: &Path) -> Result<()> {
    let cleaned =
        Command::new("go").args(["clean", "-modcache"]).env("GOMODCACHE", directory.join("go-modules")).status();
    cleaned.context("starting go clean -modcache")?;
    Ok(fs::remove_dir_all(directory)?)
}
