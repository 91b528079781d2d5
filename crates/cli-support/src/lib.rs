//! The outer edge that every binary of this project shares: how it takes its arguments and how it says that it failed.
//!
//! Whatever a person gets wrong ends with exit code 2 and one line on standard error that names the thing, the reason and
//! the way out. What went wrong through no fault of theirs ends with exit code 1 and one line.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Why a program ends without having done what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for cannot be done as it was asked: exit code 2.
    BadInput(String),
    /// It was asked for rightly and did not work: exit code 1.
    Failed(String),
}

impl Failure {
    /// The person has to change something.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Failure::BadInput(message.into())
    }

    /// `what` did not work, because of `error` and all that it was caused by.
    pub fn failed(what: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        Failure::Failed(format!("{}: {}", what.into(), chain(error)))
    }
}

/// Ends the program: 0, or one line and the exit code that belongs to the failure.
pub fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::BadInput(message)) => {
            tell(&format!("error: {}", one_line(&message)));
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            tell(&format!("error: {}", one_line(&message)));
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to standard error. If nobody can read it there is nobody to tell, and no reason to die of it.
pub fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The arguments of this process, or its end: with help where help was asked for, else with one line and exit code 2.
pub fn arguments<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        _ => {
            tell(&usage_error::<T>(&error));
            std::process::exit(2)
        }
    })
}

/// Clap's message without its paragraphs: the fault and its tips, then where to look.
fn usage_error<T: CommandFactory>(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return no_command::<T>();
    }
    let rendered = error.render().to_string();
    let (fault, rest) = rendered.split_once("\n\nUsage: ").unwrap_or((&rendered, ""));
    let fault = fault.split("\n\nFor more information").next().unwrap_or(fault);
    let command = T::command();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    // The usage line begins with the name and the subcommand that was meant, where one was.
    let subcommand = command
        .get_subcommands()
        .map(|it| format!("{name} {}", it.get_name()))
        .find(|it| rest.strip_prefix(it.as_str()).is_some_and(|after| after.starts_with([' ', '\n'])));
    format!("{} (see '{} --help')", one_line(fault), subcommand.as_deref().unwrap_or(name))
}

fn no_command<T: CommandFactory>() -> String {
    let command = T::command();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let commands: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    format!("error: say what to do: {} (see '{name} --help')", commands.join(", "))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ").replace(":;", ":")
}

/// An error and its causes, without saying anything twice: many errors print their source themselves.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !told.contains(&text) {
            told.push_str(": ");
            told.push_str(&text);
        }
        source = cause.source();
    }
    told
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

    #[test]
    fn a_usage_error_points_at_the_help_of_the_subcommand() {
        let refused = |arguments: &[&str]| usage_error::<Tool>(&Tool::try_parse_from(arguments).unwrap_err());
        let told = refused(&["tool", "draw", "--dyas", "3"]);
        assert!(told.ends_with("(see 'tool draw --help')"), "{told}");
        let told = refused(&["tool"]);
        assert_eq!(told, "error: say what to do: draw (see 'tool --help')");
    }

    fn refused(arguments: &[&str]) -> String {
        usage_error::<Arguments>(&Arguments::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn a_usage_error_is_one_line_that_names_the_argument_and_the_way_out() {
        assert_eq!(
            refused(&["thing", "--format", "yaml"]),
            "error: invalid value 'yaml' for '--format <FORMAT>'; [possible values: json, text] (see 'thing --help')"
        );
        assert_eq!(
            refused(&["thing", "--fromat", "json"]),
            "error: unexpected argument '--fromat' found; tip: a similar argument exists: '--format' (see 'thing --help')"
        );
        assert_eq!(
            refused(&["thing"]),
            "error: the following required arguments were not provided: --format <FORMAT> (see 'thing --help')"
        );
    }

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug)]
        struct Outer(std::fmt::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "outer: {}", self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let inner = std::fmt::Error;
        assert_eq!(chain(&Outer(inner)), format!("outer: {inner}"));
    }
}
