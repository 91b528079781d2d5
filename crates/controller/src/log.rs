//! The log: one line for each transition, written to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::options::LogFormat;

/// Starts the log. `RUST_LOG` chooses what is in it.
pub(crate) fn start(format: LogFormat) {
    // The client tells of each refused request as an error; which of them are errors is ours to say.
    let quiet = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = quiet.from_env_lossy().add_directive("kube_client=off".parse().expect("a directive that is right"));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => registry
            .with(tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr))
            .init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            registry.with(tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr)).init();
        }
    }
}
