//! The log: one JSON object a line, on standard error. Standard output is for matches.

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// What libraries say of each attempt is told by the agent already, once.
pub(crate) fn start() {
    let told = Targets::new().with_default(Level::ERROR).with_target(env!("CARGO_CRATE_NAME"), Level::INFO);
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines).with(told).init();
}
