//! How answers are written: for people, or for scripts.

use std::io::{self, Write};

use clap::ValueEnum;
use fivespot_cli_support::Failure;
use fivespot_schedule::Window;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer as _};

/// For whom the answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts
    Json,
}

/// A window on the wire: UTC, RFC 3339.
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

/// Writes to standard output; a reader that has gone away (`| head`) is no failure.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(anstream::stdout());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::failed("writing the answer", &error)),
    }
}

/// Writes one JSON value and a line's end.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// Writes a JSON list, one entry after the other: there can be more of them than memory holds.
pub(crate) fn print_json_list(items: impl Iterator<Item = impl Serialize>) -> Result<(), Failure> {
    print(|out| {
        serde_json::Serializer::pretty(&mut *out).collect_seq(items)?;
        writeln!(out)
    })
}

/// `Mon 2026-11-16 09:00 EST`; seconds only where there are any.
pub(crate) fn local(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    let clock = if zoned.second() == 0 { "%H:%M" } else { "%H:%M:%S" };
    zoned.strftime(&format!("%a %Y-%m-%d {clock} %Z")).to_string()
}

/// `9h`, `1h30m`, `45h`: never days, which are not all of one length.
pub(crate) fn length(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let told: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if told.is_empty() { "0h".to_owned() } else { told.concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_in_their_largest_units() {
        for (seconds, told) in [(0, "0h"), (32_400, "9h"), (5_400, "1h30m"), (183_600, "51h"), (61, "1m1s")] {
            assert_eq!(length(SignedDuration::from_secs(seconds)), told);
        }
    }
}
