//! What the controller is told when it starts.

use clap::{Parser, ValueEnum};

/// Puts machines into Cluster API clusters while their schedule is open, and takes them out gracefully when it closes.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "5spot",
    version,
    after_help = "The cluster is the one that KUBECONFIG names, or the one that the controller runs in."
)]
pub(crate) struct Options {
    /// Watch this namespace alone
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Port of /metrics; 0 takes any free one, and the log says which
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080, value_name = "PORT")]
    pub(crate) metrics_port: u16,

    /// Port of /health and /ready; 0 takes any free one, and the log says which
    #[arg(long, env = "HEALTH_PORT", default_value_t = 8081, value_name = "PORT")]
    pub(crate) health_port: u16,

    /// How the log is written
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    /// Do not take the management cluster for the workload cluster where a Cluster has no kubeconfig Secret; recommended
    /// where tenants create Clusters
    #[arg(long)]
    pub(crate) require_kubeconfig: bool,

    /// Where the reclaim agent lives, in every cluster that machines join
    #[arg(long, default_value = "5spot-system", value_name = "NAMESPACE")]
    pub(crate) agent_namespace: String,

    /// How many writes may be under way at once
    #[arg(long, default_value_t = 32, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_concurrent_writes: u16,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line
    Json,
    /// For people
    Text,
}
