//! Command-line options of the controller.

use clap::{Parser, ValueEnum};

/// Adds machines to Cluster API clusters while their schedule is open and removes them gracefully when it closes.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "5spot",
    version,
    after_help = "Connects to the cluster of KUBECONFIG, or to the cluster that it runs in. RUST_LOG selects what is logged \
                  (default: info)."
)]
pub(crate) struct Config {
    /// Watch only this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Port of /metrics; 0 selects a free port, which is logged
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080, value_name = "PORT")]
    pub(crate) metrics_port: u16,

    /// Port of /health and /ready; 0 selects a free port, which is logged
    #[arg(long, env = "HEALTH_PORT", default_value_t = 8081, value_name = "PORT")]
    pub(crate) health_port: u16,

    /// Log format
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// Require a kubeconfig Secret for every Cluster instead of using the management cluster if there is none; recommended
    /// if tenants create Clusters
    #[arg(long)]
    pub(crate) require_kubeconfig: bool,

    /// Namespace of the reclaim agent, in every cluster that machines join
    #[arg(long, default_value = "5spot-system", value_name = "NAMESPACE")]
    pub(crate) agent_namespace: String,

    /// Maximum number of concurrent writes
    #[arg(long, default_value_t = 32, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_concurrent_writes: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object per line
    Json,
    /// Human-readable lines
    Text,
}
