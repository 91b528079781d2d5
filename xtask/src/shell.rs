//! Starts other programs from the root of the repository.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use fivespot_testbed::process::OWNER_PID;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// The cargo that runs this xtask. Sets `FIVESPOT_OWNER_PID`, so that test binaries stop their servers when this process
/// exits, even if it is killed.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root()).env(OWNER_PID, std::process::id().to_string());
    command
}

/// Runs a program with inherited output and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = display(command);
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// The command line.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).to_string_lossy();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Announces a step on standard error. Ignores errors: a closed standard error must not end the command.
pub(crate) fn step(message: &str) {
    let _ = writeln!(std::io::stderr(), "==> {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The testbed's own tests check that a process exits with its owner.
    #[test]
    fn cargo_gets_the_owner_pid() {
        let command = cargo(&["test"]);
        let owner = command.get_envs().find(|(name, _)| *name == OWNER_PID).and_then(|(_, value)| value);
        assert_eq!(owner, Some(std::process::id().to_string().as_ref()));
    }
}
