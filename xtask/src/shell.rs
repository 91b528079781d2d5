//! Other programs, started from the root of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use fivespot_testbed::process::OWNER_PID;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// Cargo, as the one that started us. Whatever it starts is told who owns it: the testbed ends its servers when this
/// process is gone, however it went.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()).env(OWNER_PID, std::process::id().to_string());
    command
}

/// Runs a program to its end; what it prints goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let told = tell(command);
    let status = command.status().with_context(|| format!("starting {told}"))?;
    if !status.success() {
        bail!("{told}: {status}");
    }
    Ok(())
}

/// A command as one would type it.
pub(crate) fn tell(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).to_string_lossy();
    let arguments = command.get_args().map(|it| it.to_string_lossy());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The testbed's own tests show that a process ends when the one named here does.
    #[test]
    fn what_cargo_starts_is_told_who_owns_it() {
        let command = cargo(&["test"]);
        let owner = command.get_envs().find(|(name, _)| *name == OWNER_PID).and_then(|(_, value)| value);
        assert_eq!(owner, Some(std::process::id().to_string().as_ref()));
    }
}
