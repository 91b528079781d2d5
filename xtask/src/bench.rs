//! `cargo xtask bench`.

mod plots;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::shell::{self, cargo};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Draw the plots of docs/performance.md from the figures of the last run, and run nothing
    #[arg(long)]
    plots: bool,

    /// Run only this benchmark
    #[arg(value_name = "NAME", conflicts_with = "plots", value_parser = PossibleValuesParser::new(BENCHES.map(|(_, bench)| bench)))]
    name: Option<String>,
}

const BENCHES: [(&str, &str); 6] = [
    ("fivespot-schedule", "next_change"),
    ("fivespot-controller", "fleet"),
    ("fivespot-controller", "force_removal"),
    ("fivespot-controller", "reclaim_under_load"),
    ("fivespot-agent", "storm"),
    ("fivespot-agent", "reclaim"),
];

/// Runs the benchmarks one after the other, so that they do not affect each other.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.plots {
        return plots::draw();
    }
    let is_selected = |bench: &str| arguments.name.as_deref().is_none_or(|name| name == bench);
    for (package, bench) in BENCHES.into_iter().filter(|(_, bench)| is_selected(bench)) {
        shell::run(&mut cargo(&["bench", "--package", package, "--bench", bench]))?;
    }
    Ok(())
}
