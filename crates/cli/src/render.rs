//! Output formats, and how times and durations are displayed.

use std::io::{self, Write};

use clap::ValueEnum;
use fivespot_cli_support::Failure;
use fivespot_schedule::Window;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer as _};

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    #[default]
    Text,
    /// JSON, for scripts
    Json,
}

/// A window in JSON: RFC 3339 timestamps in UTC.
#[derive(Debug, Serialize)]
pub(crate) struct WindowJson {
    open: String,
    close: String,
}

impl From<Window> for WindowJson {
    fn from(window: Window) -> Self {
        WindowJson { open: window.open.to_string(), close: window.close.to_string() }
    }
}

/// Writes to standard output. A closed pipe (`| head`) is not a failure.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(anstream::stdout());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::failed("cannot write to standard output", &error)),
    }
}

/// Writes a JSON value and a newline. JSON requires no escapes for some control characters that control a terminal; they occur
/// in strings only.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(|out| {
        for it in serde_json::to_string_pretty(value)?.chars() {
            if it.is_control() && it != '\n' {
                write!(out, "\\u{:04x}", u32::from(it))?;
            } else {
                write!(out, "{it}")?;
            }
        }
        writeln!(out)
    })
}

/// Writes a JSON list without collecting it: it may not fit into memory.
pub(crate) fn print_json_list(items: impl Iterator<Item = impl Serialize>) -> Result<(), Failure> {
    print(|out| {
        serde_json::Serializer::pretty(&mut *out).collect_seq(items)?;
        writeln!(out)
    })
}

/// Formats a local time: `Mon 2026-11-16 09:00 EST`, with seconds if there are any.
pub(crate) fn local(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    let clock = if zoned.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
    zoned.strftime(&format!("%a %Y-%m-%d {clock} %Z")).to_string()
}

/// Formats a duration: `9h`, `1h30m`, `45h`. Not in days, whose length varies.
pub(crate) fn length(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if parts.is_empty() { "0h".to_owned() } else { parts.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (seconds, expected) in [(0, "0h"), (32_400, "9h"), (5_400, "1h30m"), (183_600, "51h"), (61, "1m1s")] {
            assert_eq!(length(SignedDuration::from_secs(seconds)), expected);
        }
    }
}
