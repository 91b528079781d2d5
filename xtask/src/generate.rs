//! `cargo xtask gen`: writes files that are generated from the code, or checks that they are up to date.

mod admission;
mod chart;
mod crd;
mod reference;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::shell::root;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a generated file is out of date
    #[arg(long)]
    check: bool,
}

struct Generated {
    path: &'static str,
    text: String,
}

impl Generated {
    fn target(&self) -> PathBuf {
        root().join(self.path)
    }
}

fn all() -> Result<Vec<Generated>> {
    let (crd, policy) = (crd::manifest()?, admission::policy()?);
    let chart = chart::files(&crd, &policy)?;
    let generated = [
        Generated { path: "deploy/crds/scheduledmachine.yaml", text: crd },
        Generated { path: "deploy/admission/validatingadmissionpolicy.yaml", text: policy },
        Generated { path: "deploy/admission/validatingadmissionpolicybinding.yaml", text: admission::binding()? },
        Generated { path: "docs/reference/api.md", text: reference::page()? },
        Generated { path: "docs/reference/admission-rules.md", text: admission::page()? },
    ];
    Ok(generated.into_iter().chain(chart).collect())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.check {
        return check();
    }
    for file in all()? {
        let target = file.target();
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&target, &file.text).with_context(|| format!("cannot write {}", file.path))?;
        println!("wrote {}", file.path);
    }
    Ok(())
}

/// Fails if a generated file is out of date.
pub(crate) fn check() -> Result<()> {
    let stale: Vec<_> = all()?
        .into_iter()
        .filter(|file| fs::read_to_string(file.target()).ok().as_ref() != Some(&file.text))
        .map(|file| file.path)
        .collect();
    if !stale.is_empty() {
        bail!("generated files are out of date: {}; run `cargo xtask gen` and commit them", stale.join(", "));
    }
    Ok(())
}
