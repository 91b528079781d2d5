//! Command-line options of the controller.

use std::time::Duration;

use clap::{ArgAction, Parser, ValueEnum};
use fivespot_cli_support::Failure;

/// Every instance exports a metric for each shard, and watches their Leases.
const MAX_INSTANCES: i64 = 1000;
/// Shorter ones leave no time for a slow API server; with longer ones machines would not be returned for long.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
const LEASE_DURATIONS: std::ops::RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_mins(10);

/// Adds machines to Cluster API clusters while their schedule is open and removes them gracefully when it closes.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "5spot",
    version,
    after_help = "Connects to the cluster of KUBECONFIG, or to the cluster that it runs in. RUST_LOG selects what is logged \
                  (default: info)."
)]
pub(crate) struct Config {
    /// Number of this instance, from 0; in a StatefulSet the index of the pod
    #[arg(long, env = "OPERATOR_INSTANCE_ID", default_value_t = 0, value_name = "NUMBER")]
    pub(crate) instance_id: u32,

    /// Number of instances, and of the shards that the ScheduledMachines are divided into; the same for all instances
    #[arg(long, env = "OPERATOR_INSTANCE_COUNT", default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=MAX_INSTANCES))]
    pub(crate) instance_count: u32,

    /// Hold a Lease for each shard, so that another instance takes over the shards of one that fails
    #[arg(long, env = "LEADER_ELECTION", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true")]
    pub(crate) leader_election: bool,

    /// Namespace of the Leases [default: the value of POD_NAMESPACE]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    /// How long after its last renewal a Lease may be acquired by another instance, from 3s to 10m [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = lease_duration)]
    lease_duration: Option<Duration>,

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

/// Settings of leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseConfig {
    pub(crate) namespace: String,
    pub(crate) duration: Duration,
}

impl Config {
    /// Rejects an id that no instance has.
    pub(crate) fn check_instance(&self) -> Result<(), Failure> {
        let Config { instance_id, instance_count, .. } = self;
        if instance_id < instance_count {
            return Ok(());
        }
        let last = instance_count - 1;
        Err(Failure::bad_input(format!(
            "--instance-id {instance_id} is too high for --instance-count {instance_count}: the ids are 0 to {last}; correct \
             OPERATOR_INSTANCE_ID or OPERATOR_INSTANCE_COUNT"
        )))
    }

    /// The settings of leader election; `None` without it. A setting that would have no effect is rejected.
    pub(crate) fn leases(&self, pod_namespace: Option<&str>) -> Result<Option<LeaseConfig>, Failure> {
        if !self.leader_election {
            let flags = [
                ("--lease-namespace", self.lease_namespace.is_some()),
                ("--lease-duration", self.lease_duration.is_some()),
            ];
            return match flags.iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(Failure::bad_input(format!(
                    "{flag} has no effect without --leader-election; add --leader-election or remove {flag}"
                ))),
                None => Ok(None),
            };
        }
        match self.lease_namespace.as_deref().or(pod_namespace) {
            Some(namespace) if !namespace.is_empty() => Ok(Some(LeaseConfig {
                namespace: namespace.to_owned(),
                duration: self.lease_duration.unwrap_or(DEFAULT_LEASE_DURATION),
            })),
            Some(_) | None => Err(Failure::bad_input(
                "--leader-election requires the namespace of the Leases; set --lease-namespace or POD_NAMESPACE",
            )),
        }
    }
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = fivespot_schedule::parse_duration(text).map_err(|error| error.to_string())?.unsigned_abs();
    if LEASE_DURATIONS.contains(&duration) { Ok(duration) } else { Err("must be between 3s and 10m".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Config {
        Config::try_parse_from(["5spot"].iter().chain(args)).unwrap()
    }

    #[test]
    fn setting_without_effect_is_rejected() {
        for flag in ["--lease-namespace=5spot-system", "--lease-duration=20s"] {
            let error = config(&[flag]).leases(None).unwrap_err().to_string();
            assert!(error.contains("has no effect without --leader-election"), "{error}");
            assert!(config(&["--leader-election", flag]).leases(Some("5spot-system")).unwrap().is_some());
        }
        // A pod may have the variable for other reasons.
        assert_eq!(config(&[]).leases(Some("5spot-system")).unwrap(), None);
        assert_eq!(config(&["--leader-election=false"]).leases(None).unwrap(), None);
    }

    #[test]
    fn leases_need_a_namespace() {
        let error = config(&["--leader-election"]).leases(Some("")).unwrap_err().to_string();
        assert!(error.contains("set --lease-namespace or POD_NAMESPACE"), "{error}");
        let leases = config(&["--leader-election"]).leases(Some("5spot-system")).unwrap().unwrap();
        assert_eq!(leases, LeaseConfig { namespace: "5spot-system".to_owned(), duration: DEFAULT_LEASE_DURATION });
    }

    #[test]
    fn instance_that_does_not_exist_is_rejected() {
        for (id, count) in [("1", "1"), ("3", "3")] {
            let error = config(&["--instance-id", id, "--instance-count", count]).check_instance().unwrap_err();
            assert!(error.to_string().contains("too high"), "{error}");
        }
        config(&["--instance-id", "2", "--instance-count", "3"]).check_instance().unwrap();
        for args in [
            ["--instance-count", "0"],
            ["--instance-count", "1001"],
            ["--lease-duration", "2s"],
            ["--lease-duration", "15"],
        ] {
            Config::try_parse_from(["5spot"].iter().chain(&args)).unwrap_err();
        }
    }
}
