//! The log: one JSON object a line, on standard error. Standard output is for matches.

use std::io::{self, Write};

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What libraries say of each attempt is told by the agent already, once.
pub(crate) fn start() {
    let told = Targets::new().with_default(Level::ERROR).with_target(env!("CARGO_CRATE_NAME"), Level::INFO);
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(|| ForTerminals(io::stderr()));
    tracing_subscriber::registry().with(lines).with(told).init();
}

/// Anybody may call a program anything, and whoever reads the log may do so on a terminal. JSON escapes the control characters
/// of ASCII but one; a terminal heeds some more.
struct ForTerminals<W>(W);

impl<W: Write> Write for ForTerminals<W> {
    /// A whole line at once, as it is written.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains(needs_escape) {
            self.0.write_all(escaped(&text).as_bytes())?;
        } else {
            self.0.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn needs_escape(it: char) -> bool {
    it != '\n' && it.is_control()
}

/// They can only be in the strings of it, where JSON writes them so.
fn escaped(line: &str) -> String {
    let shown = |it: char| if needs_escape(it) { format!("\\u{:04x}", u32::from(it)) } else { it.to_string() };
    line.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_heed_is_written_so_that_it_says_the_same() {
        let said = "idea\u{7f}\u{9b}2J\u{1b}\u{85}ü";
        let mut written = ForTerminals(Vec::new());
        writeln!(written, "{}", serde_json::json!({ "comm": said })).unwrap();
        let written = String::from_utf8(written.0).unwrap();
        assert!(!written.trim_end().contains(char::is_control), "{written:?}");
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read["comm"], said);
    }
}
