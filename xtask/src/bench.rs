//! `cargo xtask bench`.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Runs the benchmarks one after the other, so that they do not affect each other.
pub(crate) fn run() -> Result<()> {
    let benches = [
        ("fivespot-schedule", "next_change"),
        ("fivespot-controller", "fleet"),
        ("fivespot-controller", "boundary"),
        ("fivespot-controller", "force_removal"),
        ("fivespot-controller", "reclaim_under_load"),
        ("fivespot-agent", "storm"),
        ("fivespot-agent", "reclaim"),
    ];
    for (package, bench) in benches {
        shell::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
    }
    Ok(())
}
