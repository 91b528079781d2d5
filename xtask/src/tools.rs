//! Tools that CI needs and that Cargo can build: pinned, and built once into the testbed's cache directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::{cargo, run};

const CARGO_DENY: &str = "0.20.2";

/// The path of cargo-deny at the pinned version: from the PATH, or built into the testbed's cache directory.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let installed = Command::new("cargo-deny").arg("--version").output();
    if installed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(CARGO_DENY)) {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let root = fivespot_testbed::artifacts::cache_directory()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let binary = root.join("bin/cargo-deny");
    if !binary.is_file() {
        println!("Building cargo-deny {CARGO_DENY} in {} (first run only)", root.display());
        // A debug build takes a third of the time, and the check runs for only a second.
        run(cargo(&["install", "cargo-deny", "--locked", "--debug", "--no-track", "--version", CARGO_DENY])
            .arg("--root")
            .arg(&root)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", root.join("build")))?;
        std::fs::remove_dir_all(root.join("build")).context("cannot remove the build directory of cargo-deny")?;
    }
    Ok(binary)
}
