//! `cargo xtask bench`.

use anyhow::Result;

use crate::shell::{self, cargo};

/// Every benchmark of the workspace, one after the other, so that none disturbs another.
pub(crate) fn run() -> Result<()> {
    shell::run(&mut cargo(&["bench", "--package", "fivespot-schedule", "--bench", "next_change"]))
}
