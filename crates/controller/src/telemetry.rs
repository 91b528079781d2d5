//! Logs, written to standard error, and traces. What is logged can be changed while the process runs.

pub(crate) mod traces;

use std::io::IsTerminal as _;

use fivespot_cli_support::Failure;
use parking_lot::Mutex;
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use self::traces::Traces;
use crate::config::LogFormat;

const DEFAULT_FILTER: &str = "info";
/// Levels by name. Any other word in a filter is a target, and means all of its levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Crates that log what a server sent, in full and on each attempt, and the level that they get. Servers of workload
/// clusters belong to tenants, so the controller logs such texts itself, shortened and not often.
const QUIET_CRATES: [&str; 2] = ["kube_client", "kube_runtime"];

/// Target of the spans of requests, which are only traced: in the log they would hide the span of the reconcile.
const REQUEST_SPANS: &str = "5spot_requests";

/// What is logged.
pub(crate) struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    /// The filter of the start, to which an empty one returns.
    initial: String,
    current: Mutex<String>,
}

/// Starts logging and tracing. `RUST_LOG` replaces the default filter, except for [`QUIET_CRATES`], which it has to name.
pub(crate) fn init(format: LogFormat, traces: &Traces) -> Result<LogFilter, Failure> {
    let rust_log = std::env::var("RUST_LOG").ok();
    let initial = rust_log.filter(|it| !it.trim().is_empty()).unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let filter = filter(&initial).map_err(|error| {
        Failure::bad_input(format!(
            "cannot read RUST_LOG {initial:?}: {error}; write for example RUST_LOG=info or RUST_LOG=info,kube_client=debug"
        ))
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(true);
            layer.with_span_list(false).with_writer(std::io::stderr).boxed()
        }
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(std::io::stderr).boxed()
        }
    };
    let mut layers = vec![layer.with_filter(filter).boxed()];
    layers.extend(traces.layer());
    tracing_subscriber::registry().with(layers).init();
    Ok(LogFilter { handle, current: Mutex::new(initial.clone()), initial })
}

impl LogFilter {
    /// A filter of no subscriber.
    #[cfg(test)]
    pub(crate) fn for_test(initial: &str) -> Self {
        let (layer, handle) = reload::Layer::new(filter(initial).unwrap());
        // The handle works as long as the layer exists.
        std::mem::forget(layer);
        LogFilter { handle, current: Mutex::new(initial.to_owned()), initial: initial.to_owned() }
    }

    pub(crate) fn current(&self) -> String {
        self.current.lock().clone()
    }

    /// Replaces the filter; an empty one stands for that of the start. The error says how to write it.
    pub(crate) fn set(&self, directives: &str) -> Result<(), String> {
        let directives = Some(directives.trim()).filter(|it| !it.is_empty()).unwrap_or(&self.initial);
        let filter = changed_filter(directives).map_err(|error| {
            format!("cannot read {directives:?}: {error}; write for example debug or info,5spot=debug")
        })?;
        let mut current = self.current.lock();
        let (from, to) = (current.as_str(), directives);
        // Logged under the filter that shows it, if one of them does.
        let shown_before = tracing::enabled!(Level::INFO);
        if shown_before {
            tracing::info!(from, to, "Changed log filter");
        }
        self.handle.reload(filter).map_err(|error| format!("cannot change the log filter: {error}"))?;
        if !shown_before {
            tracing::info!(from, to, "Changed log filter");
        }
        directives.clone_into(&mut current);
        Ok(())
    }
}

fn filter(directives: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    let quiet = QUIET_CRATES.iter().filter(|it| !names_crate(directives, it)).map(|it| format!(",{it}=off"));
    EnvFilter::try_new(format!("{directives}{},{REQUEST_SPANS}=off", quiet.collect::<String>()))
}

/// Rejects also a misspelt level, which would be a target that logs nothing, while everything else is off.
fn changed_filter(directives: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let mut words = directives.split(',').map(str::trim).filter(|directive| !directive.contains(['=', '[']));
    match words.find(|word| !is_level(word)) {
        Some(word) => Err(format!("{word:?} is not a level ({})", LEVELS.join(", "))),
        None => filter(directives).map_err(|error| error.to_string()),
    }
}

/// Whether a directive is about this crate.
fn names_crate(directives: &str, name: &str) -> bool {
    directives.split(',').any(|directive| directive.trim().split(['=', ':', '[']).next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_replaces_the_default_filter() {
        let filter = |directives| filter(directives).map(|filter| filter.to_string());
        assert_eq!(filter(DEFAULT_FILTER).unwrap(), "5spot_requests=off,kube_runtime=off,kube_client=off,info");
        let named = filter("kube_client=debug,kube_runtime::watcher=warn").unwrap();
        assert_eq!(named, "kube_runtime::watcher=warn,5spot_requests=off,kube_client=debug");
        assert!(filter("info,=x=").is_err());
    }

    #[test]
    fn changed_filter_keeps_quiet_crates_and_rejects_misspelt_levels() {
        let filter = |directives| changed_filter(directives).map(|filter| filter.to_string());
        assert_eq!(filter("DEBUG").unwrap(), "5spot_requests=off,kube_runtime=off,kube_client=off,debug");
        assert_eq!(filter("5spot=debug").unwrap(), "5spot_requests=off,kube_runtime=off,kube_client=off,5spot=debug");
        assert!(filter("[reconcile{scheduledmachine=team/desk}]=debug").is_ok());
        assert_eq!(filter("inof").unwrap_err(), "\"inof\" is not a level (off, error, warn, info, debug, trace)");
        for invalid in ["5spot=loud", "info,=x=", "info,,", "debug info"] {
            assert!(filter(invalid).is_err(), "{invalid}");
        }
    }
}
