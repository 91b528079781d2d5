//! Command line and environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};
use jiff::SignedDuration;

use crate::config::POLL_INTERVAL_MS;
use crate::signals::process::DetectorChoice;

/// Requests an emergency reclaim of this machine when its owner starts one of the configured programs
#[derive(Clone, Debug, Parser)]
#[command(
    name = "5spot-reclaim-agent",
    version,
    after_help = "Exit codes: 0 success or stopped by a signal, 1 failure, 2 invalid usage or configuration, 10 match found \
                  with --oneshot."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Options {
    /// Name of this machine's Node
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// Namespace of the agent's ConfigMap
    #[arg(long, env = "POD_NAMESPACE", default_value = "5spot-system", value_name = "NAMESPACE")]
    pub(crate) agent_namespace: String,

    /// How to detect started programs
    #[arg(long, env = "RECLAIM_DETECTOR", value_enum, default_value_t = DetectorChoice::Auto, value_name = "DETECTOR")]
    pub(crate) detector: DetectorChoice,

    /// Interval between two scans of the poll detector, from 10ms to 5s; takes precedence over `poll_interval_ms` of the agent
    /// configuration, whose default is 250
    #[arg(long, env = "RECLAIM_POLL_INTERVAL", value_parser = parse_poll_interval, value_name = "DURATION")]
    pub(crate) poll_interval: Option<Duration>,

    /// Mount point of the host's procfs
    #[arg(long, env = "RECLAIM_PROC_ROOT", default_value = "/proc", value_name = "DIRECTORY")]
    pub(crate) proc_root: PathBuf,

    /// File with the machine ID of this machine
    #[arg(long, env = "MACHINE_ID_PATH", default_value = "/etc/machine-id", value_name = "FILE")]
    pub(crate) machine_id_path: PathBuf,

    /// Trust --node-name without comparing the Node's machine ID
    #[arg(
        long, env = "SKIP_HOST_ID_CHECK", action = ArgAction::Set, value_parser = BoolishValueParser::new(),
        default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_name = "BOOL"
    )]
    pub(crate) skip_host_id_check: bool,

    /// Read the agent configuration from this reclaim.toml instead of the ConfigMap
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Scan the running processes once and exit: code 0 without a match, 10 with one
    #[arg(long)]
    pub(crate) oneshot: bool,

    /// Write nothing to the cluster; print matches as JSON lines to standard output
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Check that the agent on this machine is armed and detects this process: exit code 0 if it does
    #[arg(long, conflicts_with_all = ["oneshot", "dry_run", "config"])]
    pub(crate) probe: bool,

    /// Directory in which the agent keeps the state that --probe reads
    #[arg(long, default_value = "/run/5spot-reclaim-agent", value_name = "DIRECTORY")]
    pub(crate) state_dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum PollIntervalError {
    #[error("it is not a duration: write it like 500ms or 2s")]
    Parse(#[source] jiff::Error),
    #[error("it must be between {}ms and {}ms", POLL_INTERVAL_MS.start(), POLL_INTERVAL_MS.end())]
    OutOfBounds,
}

fn parse_poll_interval(text: &str) -> Result<Duration, PollIntervalError> {
    let interval: SignedDuration = text.parse().map_err(PollIntervalError::Parse)?;
    match u64::try_from(interval.as_millis()) {
        Ok(milliseconds) if POLL_INTERVAL_MS.contains(&milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Ok(_) | Err(_) => Err(PollIntervalError::OutOfBounds),
    }
}
