//! Programs that CI needs and that Cargo can build: each pinned, built once, kept beside the testbed's own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::{cargo, run};

const CARGO_DENY: &str = "0.20.2";

/// cargo-deny at its pinned version: the one on the PATH if it is that, else one built into the testbed's directory.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let installed = Command::new("cargo-deny").arg("--version").output();
    if installed.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).trim().ends_with(CARGO_DENY)) {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let root = fivespot_testbed::artifacts::cache_directory()
        .context("a directory for tools")?
        .join(format!("cargo-deny-{CARGO_DENY}"));
    let binary = root.join("bin/cargo-deny");
    if !binary.is_file() {
        println!("building cargo-deny {CARGO_DENY} into {} (once)", root.display());
        // A debug build: it runs for a second, and takes a third of the time to build.
        run(cargo(&[
            "install",
            "cargo-deny",
            "--quiet",
            "--locked",
            "--debug",
            "--no-track",
            "--version",
            CARGO_DENY,
        ])
        .arg("--root")
        .arg(&root)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", root.join("build")))?;
        std::fs::remove_dir_all(root.join("build")).context("removing what the build left")?;
    }
    Ok(binary)
}
