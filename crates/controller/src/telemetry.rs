//! Logs, written to standard error.

use std::io::IsTerminal as _;

use fivespot_cli_support::Failure;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

const DEFAULT_FILTER: &str = "info";

/// Crates that log what a server sent, in full and on each attempt, and the level that they get. Servers of workload
/// clusters belong to tenants, so the controller logs such texts itself, shortened and not often.
const QUIET_CRATES: [&str; 2] = ["kube_client", "kube_runtime"];

/// Starts logging. `RUST_LOG` replaces the default filter, except for [`QUIET_CRATES`], which it has to name.
pub(crate) fn init(format: LogFormat) -> Result<(), Failure> {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref())?;
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(true);
            registry.with(layer.with_span_list(false).with_writer(std::io::stderr)).init();
        }
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            registry.with(tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(std::io::stderr)).init();
        }
    }
    Ok(())
}

fn filter(rust_log: Option<&str>) -> Result<EnvFilter, Failure> {
    let directives = rust_log.filter(|directives| !directives.trim().is_empty()).unwrap_or(DEFAULT_FILTER);
    let quiet = QUIET_CRATES.iter().filter(|it| !names_crate(directives, it)).map(|it| format!(",{it}=off"));
    EnvFilter::try_new(format!("{directives}{}", quiet.collect::<String>())).map_err(|error| {
        Failure::bad_input(format!(
            "cannot read RUST_LOG {directives:?}: {error}; write for example RUST_LOG=info or RUST_LOG=info,kube_client=debug"
        ))
    })
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
        assert_eq!(filter(None).unwrap().to_string(), filter(Some(DEFAULT_FILTER)).unwrap().to_string());
        assert_eq!(filter(Some("")).unwrap().to_string(), filter(None).unwrap().to_string());
        assert_eq!(filter(None).unwrap().to_string(), "kube_runtime=off,kube_client=off,info");
        let named = filter(Some("kube_client=debug,kube_runtime::watcher=warn")).unwrap();
        assert_eq!(named.to_string(), "kube_runtime::watcher=warn,kube_client=debug");
        assert!(filter(Some("info,=x=")).is_err());
    }
}
