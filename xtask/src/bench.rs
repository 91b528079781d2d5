//! `cargo xtask bench`.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Every benchmark of the workspace, one after the other, so that none disturbs another.
pub(crate) fn run() -> Result<()> {
    for (package, bench) in [("fivespot-schedule", "next_change"), ("fivespot-controller", "boundary")] {
        shell::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
    }
    Ok(())
}
