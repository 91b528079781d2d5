//! The ScheduledMachine that a subcommand operates on: an object in the cluster, or one in a file.

use std::path::PathBuf;

use clap::Args;
use fivespot_cli_support::Failure;
use fivespot_schedule::Schedule;
use fivespot_validation::names;
use fivespot_validation::validate::{SpecErrors, Standard, validate_schedule};
use jiff::Timestamp;

use crate::cluster::{self, ClusterError, ClusterOptions};
use crate::manifest_file::{self, ManifestFileError, Selector};

#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// Name of the ScheduledMachine; with --filename, selects one of several in the file
    name: Option<String>,

    /// Read the ScheduledMachine from this file instead of the cluster ("-": standard input)
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,

    /// Namespace of the ScheduledMachine [default: the namespace of the context or of the file]
    #[arg(short, long)]
    namespace: Option<String>,

    /// Context of the kubeconfig [default: the current context]
    #[arg(long, conflicts_with = "filename")]
    context: Option<String>,

    /// Path of the kubeconfig [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<PathBuf>,
}

/// A ScheduledMachine with a valid schedule.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) enabled: bool,
    pub(crate) timezone: String,
    pub(crate) schedule: Schedule,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("--namespace: {namespace:?} is not a valid name of a namespace")]
    InvalidNamespace { namespace: String },
    #[error("NAME: {name:?} is not a valid name of a ScheduledMachine")]
    InvalidName { name: String },
    #[error("specify a ScheduledMachine: its NAME in the cluster, or -f FILE")]
    NotSpecified,
    #[error(transparent)]
    File(#[from] ManifestFileError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the schedule of ScheduledMachine {name:?} is invalid: {source}")]
    InvalidSchedule { name: String, source: SpecErrors },
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Cluster(error) => error.into(),
            TargetError::File(error) => error.into(),
            TargetError::InvalidNamespace { .. }
            | TargetError::InvalidName { .. }
            | TargetError::NotSpecified
            | TargetError::InvalidSchedule { .. } => Failure::BadInput(error.to_string()),
        }
    }
}

impl TargetArguments {
    /// Reads the ScheduledMachine and parses its schedule.
    pub(crate) fn load(&self) -> Result<Target, TargetError> {
        check_namespace(self.namespace.as_deref())?;
        let (name, spec, standard) = if let Some(path) = &self.filename {
            let selector = Selector { name: self.name.as_deref(), namespace: self.namespace.as_deref() };
            let machine = manifest_file::read(path, selector)?;
            (machine.name, machine.schedule, Standard::Admission)
        } else {
            let name = self.name.clone().ok_or(TargetError::NotSpecified)?;
            if !names::is_dns_subdomain(&name) {
                return Err(TargetError::InvalidName { name });
            }
            let options = ClusterOptions {
                namespace: self.namespace.clone(),
                context: self.context.clone(),
                kubeconfig: self.kubeconfig.clone(),
            };
            let machine = cluster::get(&options, &name)?;
            (name, machine.spec.schedule, Standard::Stored)
        };
        match validate_schedule(&spec, standard) {
            Ok(schedule) => Ok(Target { name, enabled: spec.enabled, timezone: spec.timezone, schedule }),
            Err(source) => Err(TargetError::InvalidSchedule { name, source }),
        }
    }
}

/// Validates the value of `--namespace`.
pub(crate) fn check_namespace(namespace: Option<&str>) -> Result<(), TargetError> {
    match namespace {
        Some(namespace) if !names::is_dns_label(namespace) => {
            Err(TargetError::InvalidNamespace { namespace: namespace.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}

impl Target {
    /// Parses the value of an option: an RFC 3339 timestamp, or a date in the time zone of the schedule.
    pub(crate) fn parse_instant(&self, option: &str, text: &str) -> Result<Timestamp, Failure> {
        self.schedule.parse_instant(text).map_err(|error| Failure::bad_input(format!("{option}: {error}")))
    }
}
