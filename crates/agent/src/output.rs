//! The lines of JSON on standard output.

use std::io::{self, Write as _};

use jiff::Timestamp;
use serde::Serialize;

use crate::lookout::Found;
use crate::matcher::Source;

/// One line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Line<'a> {
    /// From here on nothing that is started is missed.
    Armed { detector: &'a str },
    /// A process that its owner wants the machine back for.
    Match { pid: u32, comm: &'a str, matched: &'a str, source: Source, at: Timestamp },
}

impl<'a> Line<'a> {
    pub(crate) fn of(found: &'a Found, at: Timestamp) -> Self {
        let Found { pid, what } = found;
        Line::Match { pid: *pid, comm: &what.comm, matched: &what.matched, source: what.source, at }
    }

    /// Writes it whole and at once: whoever reads may act on it now.
    pub(crate) fn write(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut output = io::stdout().lock();
        output.write_all(&line)?;
        output.flush()
    }
}
