//! Argument parsing and exit codes, shared by the binaries of this project.
//!
//! Every failure ends with a single line on standard error that names the object, the cause and, if possible, the remedy. The
//! exit code is 2 if the user has to change an argument, a file or the environment, and 1 for any other failure.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The user has to change an argument, a file or the environment. Exit code 2.
    #[error("{0}")]
    BadInput(String),
    /// The input is valid, but the operation failed. Exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    pub fn bad_input(message: impl Into<String>) -> Self {
        Failure::BadInput(message.into())
    }

    /// An operation that failed because of `error` and its sources.
    pub fn failed(operation: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        Failure::Failed(format!("{}: {}", operation.into(), chain(error)))
    }
}

/// Aborts the process on a panic in any thread, after it was printed: a thread that ended silently would leave its part of
/// the work undone.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
}

/// Prints the failure, if any, and returns the exit code.
pub fn finish(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    write_stderr(&format!("error: {}", one_line(&failure.to_string())));
    match failure {
        Failure::BadInput(_) => ExitCode::from(2),
        Failure::Failed(_) => ExitCode::FAILURE,
    }
}

/// Escapes control characters: text from an untrusted source, such as a manifest, must not control the terminal.
pub fn printable(text: &str) -> String {
    let escape = |it: char| if it.is_control() { it.escape_default().to_string() } else { it.to_string() };
    text.chars().map(escape).collect()
}

/// Writes a line to standard error, with control characters escaped. Ignores errors, unlike `eprintln!`, which panics if standard error is closed.
pub fn write_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

/// Parses the arguments of the process. Exits with the help or version if requested, and with one line and exit code 2 if the
/// arguments are invalid.
pub fn parse_args<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        _ => {
            write_stderr(&usage_error::<T>(&error));
            std::process::exit(2)
        }
    })
}

/// Reduces an error of clap to one line: the error and its tips, and the command that prints the help.
fn usage_error<T: CommandFactory>(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return missing_subcommand::<T>();
    }
    let rendered = error.render().to_string();
    let (message, usage) = rendered.split_once("\n\nUsage: ").unwrap_or((&rendered, ""));
    let message = message.split("\n\nFor more information").next().unwrap_or(message);
    let command = T::command();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    // The usage line starts with the name of the program and the subcommand, if any.
    let subcommand = command
        .get_subcommands()
        .map(|it| format!("{name} {}", it.get_name()))
        .find(|it| usage.strip_prefix(it.as_str()).is_some_and(|rest| rest.starts_with([' ', '\n'])));
    format!("{} (see '{} --help')", one_line(message), subcommand.as_deref().unwrap_or(name))
}

fn missing_subcommand<T: CommandFactory>() -> String {
    let command = T::command();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let subcommands: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    format!("error: a subcommand is required: {} (see '{name} --help')", subcommands.join(", "))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ").replace(":;", ":")
}

/// Formats an error and its sources. Omits sources that a previous message already contains.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "thing")]
    struct Arguments {
        #[arg(long, value_parser = ["json", "text"])]
        format: String,
    }

    #[derive(Debug, Parser)]
    #[command(name = "tool")]
    enum Tool {
        Draw {
            #[arg(long)]
            days: u8,
        },
    }

    fn error_of<T: Parser + std::fmt::Debug>(arguments: &[&str]) -> String {
        usage_error::<T>(&T::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn usage_error_refers_to_help_of_subcommand() {
        let message = error_of::<Tool>(&["tool", "draw", "--dyas", "3"]);
        assert!(message.ends_with("(see 'tool draw --help')"), "{message}");
        assert_eq!(error_of::<Tool>(&["tool"]), "error: a subcommand is required: draw (see 'tool --help')");
    }

    #[test]
    fn usage_error_is_one_line() {
        assert_eq!(
            error_of::<Arguments>(&["thing", "--format", "yaml"]),
            "error: invalid value 'yaml' for '--format <FORMAT>'; [possible values: json, text] (see 'thing --help')"
        );
        assert_eq!(
            error_of::<Arguments>(&["thing", "--fromat", "json"]),
            "error: unexpected argument '--fromat' found; tip: a similar argument exists: '--format' (see 'thing --help')"
        );
        assert_eq!(
            error_of::<Arguments>(&["thing"]),
            "error: the following required arguments were not provided: --format <FORMAT> (see 'thing --help')"
        );
    }

    #[test]
    fn chain_does_not_repeat_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] std::fmt::Error);
        let inner = std::fmt::Error;
        assert_eq!(chain(&Outer(inner)), format!("outer: {inner}"));
    }
}
