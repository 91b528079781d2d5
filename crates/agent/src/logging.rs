//! The log: one JSON object per line on standard error. Standard output is reserved for matches.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Used unless `RUST_LOG` is set. Libraries log every failed attempt; the agent logs each cause once.
const DEFAULT_FILTER: &str = concat!("error,", env!("CARGO_CRATE_NAME"), "=info");

#[derive(Debug, thiserror::Error)]
#[error("cannot parse RUST_LOG {value:?}: {source}")]
pub(crate) struct InvalidFilter {
    value: String,
    source: ParseError,
}

pub(crate) fn init() -> Result<(), InvalidFilter> {
    let value = std::env::var_os(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let filter = parse_filter(&value.to_string_lossy())?;
    let layer =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(|| EscapeControls(io::stderr()));
    tracing_subscriber::registry().with(layer).with(filter).init();
    Ok(())
}

fn parse_filter(value: &str) -> Result<EnvFilter, InvalidFilter> {
    let directives = if value.trim().is_empty() { DEFAULT_FILTER } else { value };
    EnvFilter::builder().parse(directives).map_err(|source| InvalidFilter { value: value.to_owned(), source })
}

/// Escapes control characters: a process may have any name, and the log may be read on a terminal. JSON escapes those of
/// ASCII except DEL, but terminals interpret those of Unicode too.
struct EscapeControls<W>(W);

impl<W: Write> Write for EscapeControls<W> {
    /// Called with a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains(needs_escape) {
            self.0.write_all(escape(&text).as_bytes())?;
        } else {
            self.0.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn needs_escape(character: char) -> bool {
    character != '\n' && character.is_control()
}

/// Control characters occur only inside JSON strings, where `\u` escapes are valid.
fn escape(line: &str) -> String {
    let escaped = |it: char| if needs_escape(it) { format!("\\u{:04x}", u32::from(it)) } else { it.to_string() };
    line.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_losslessly() {
        let comm = "idea\u{7f}\u{9b}2J\u{1b}\u{85}ü";
        let mut written = EscapeControls(Vec::new());
        writeln!(written, "{}", serde_json::json!({ "comm": comm })).unwrap();
        let written = String::from_utf8(written.0).unwrap();
        assert!(!written.trim_end().contains(char::is_control), "{written:?}");
        let parsed: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(parsed["comm"], comm);
    }

    #[test]
    fn rust_log_replaces_the_default_filter() {
        for unset in ["", " "] {
            assert_eq!(parse_filter(unset).unwrap().to_string(), parse_filter(DEFAULT_FILTER).unwrap().to_string());
        }
        assert_eq!(parse_filter("kube_client=debug").unwrap().to_string(), "kube_client=debug");
        let error = parse_filter("kube_client=loud").unwrap_err().to_string();
        assert!(error.starts_with("cannot parse RUST_LOG \"kube_client=loud\": "), "{error}");
    }
}
