//! `cargo xtask bench`.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Every benchmark of the workspace, one after the other, so that none disturbs another.
pub(crate) fn run() -> Result<()> {
    let all = [
        ("fivespot-schedule", "next_change"),
        ("fivespot-controller", "boundary"),
        ("fivespot-controller", "force_removal"),
        ("fivespot-agent", "storm"),
        ("fivespot-agent", "reclaim"),
    ];
    for (package, bench) in all {
        shell::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
    }
    Ok(())
}
