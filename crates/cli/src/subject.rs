//! Whose schedule is asked for: an object of the cluster by its name, or one in a file.

use std::path::PathBuf;

use clap::Args;
use fivespot_cli_support::Failure;
use fivespot_schedule::Schedule;
use fivespot_validation::names;
use fivespot_validation::validate::{Standard, validate_schedule};
use jiff::Timestamp;

use crate::{cluster, manifest};

/// How every subcommand is told which ScheduledMachine it is about.
#[derive(Debug, Args)]
pub(crate) struct SubjectArguments {
    /// Name of the ScheduledMachine; with --filename, which of several in the file
    name: Option<String>,

    /// Read the ScheduledMachine from this file ("-": standard input), with no cluster
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,

    /// Namespace of the ScheduledMachine; that of the context, or of the file, unless given
    #[arg(short, long)]
    namespace: Option<String>,

    /// Context of the kubeconfig; the current one unless given
    #[arg(long, conflicts_with = "filename")]
    context: Option<String>,

    /// Path of the kubeconfig; KUBECONFIG or ~/.kube/config unless given
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<PathBuf>,
}

/// A machine whose schedule has been read.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) enabled: bool,
    pub(crate) timezone: String,
    pub(crate) schedule: Schedule,
}

impl SubjectArguments {
    /// Finds the ScheduledMachine and reads its schedule.
    pub(crate) fn find(&self) -> Result<Subject, Failure> {
        if let Some(namespace) = self.namespace.as_deref().filter(|it| !names::is_dns_label(it)) {
            return Err(Failure::bad_input(format!("--namespace: {namespace:?} cannot be the name of a namespace")));
        }
        let (name, spec, standard) = if let Some(path) = &self.filename {
            let wanted = manifest::Wanted { name: self.name.as_deref(), namespace: self.namespace.as_deref() };
            let found = manifest::read(path, wanted)?;
            (found.name, found.schedule, Standard::Admission)
        } else {
            let unnamed = || Failure::bad_input("say which ScheduledMachine: its NAME in the cluster, or -f FILE");
            let name = self.name.clone().ok_or_else(unnamed)?;
            if !names::is_dns_subdomain(&name) {
                return Err(Failure::bad_input(format!("NAME: {name:?} cannot be the name of a ScheduledMachine")));
            }
            let target = cluster::Target {
                namespace: self.namespace.clone(),
                context: self.context.clone(),
                kubeconfig: self.kubeconfig.clone(),
            };
            let found = cluster::get(&target, &name)?;
            (name, found.spec.schedule, Standard::Stored)
        };
        let schedule = validate_schedule(&spec, standard)
            .map_err(|errors| Failure::bad_input(format!("ScheduledMachine {name:?}: {errors}")))?;
        Ok(Subject { name, enabled: spec.enabled, timezone: spec.timezone, schedule })
    }
}

impl Subject {
    /// Reads an instant or a local date of the schedule's zone, as an override writes them.
    pub(crate) fn moment(&self, option: &str, text: &str) -> Result<Timestamp, Failure> {
        self.schedule.moment(option, text).map_err(|error| Failure::bad_input(error.to_string()))
    }
}
