//! The log: one JSON object a line, on standard error. Standard output is for matches.

use tracing::Level;

pub(crate) fn start() {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(Level::INFO)
        .with_writer(std::io::stderr)
        .init();
}
