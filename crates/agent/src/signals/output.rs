//! The JSON lines of `--dry-run` and `--oneshot` on standard output.

use std::io::{self, Write as _};

use jiff::Timestamp;
use serde::Serialize;

use super::OwnerMatch;
use super::process::{MatchSource, ProcessMatch};

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Line<'a> {
    /// The agent reports every match from here on.
    Armed { detector: &'a str },
    /// A process that matches.
    Match { pid: u32, comm: &'a str, matched: &'a str, source: MatchSource, at: Timestamp },
}

impl<'a> Line<'a> {
    pub(super) fn from_match(found: &'a OwnerMatch, at: Timestamp) -> Self {
        match found {
            OwnerMatch::Process(ProcessMatch { pid, comm, matched, source }) => {
                Line::Match { pid: *pid, comm, matched, source: *source, at }
            }
        }
    }

    /// Writes and flushes the whole line: the reader may act on it immediately.
    pub(super) fn write(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut output = io::stdout().lock();
        output.write_all(&line)?;
        output.flush()
    }
}
