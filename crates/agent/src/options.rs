//! What the agent is told when it starts.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};

use crate::detect::Choice;

/// Asks for the machine back the moment its owner starts one of their programs.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "5spot-reclaim-agent",
    version,
    after_help = "Exit codes: 0 done or told to stop, 1 failed, 2 asked for what cannot be done, 10 a match of --oneshot."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Options {
    /// The Node that this machine is
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// The namespace of its ConfigMap
    #[arg(long, env = "POD_NAMESPACE", default_value = "5spot-system", value_name = "NAMESPACE")]
    pub(crate) agent_namespace: String,

    /// How started programs are noticed
    #[arg(long, env = "RECLAIM_DETECTOR", value_enum, default_value_t = Choice::Auto, value_name = "DETECTOR")]
    pub(crate) detector: Choice,

    /// Where the host's procfs is mounted
    #[arg(long, env = "RECLAIM_PROC_ROOT", default_value = "/proc", value_name = "DIRECTORY")]
    pub(crate) proc_root: PathBuf,

    /// The file that identifies this machine
    #[arg(long, env = "MACHINE_ID_PATH", default_value = "/etc/machine-id", value_name = "FILE")]
    pub(crate) machine_id_path: PathBuf,

    /// Trust the Node's name without comparing the machine's identity with it
    #[arg(
        long, env = "SKIP_HOST_ID_CHECK", action = ArgAction::Set, value_parser = BoolishValueParser::new(),
        default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_name = "BOOL"
    )]
    pub(crate) skip_host_id_check: bool,

    /// What to look for: a reclaim.toml, in place of the ConfigMap
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// ProbeResult once at what runs: exit code 0 for no match, 10 for one
    #[arg(long)]
    pub(crate) oneshot: bool,

    /// Write to no cluster; tell of each match as a line of JSON on standard output
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Ask the agent that runs here whether it is armed and notices this process: exit code 0 for yes
    #[arg(long, conflicts_with_all = ["oneshot", "dry_run", "config"])]
    pub(crate) probe: bool,

    /// Where the agent keeps what it answers to --probe
    #[arg(long, default_value = "/run/5spot-reclaim-agent", value_name = "DIRECTORY")]
    pub(crate) state_dir: PathBuf,
}
