//! From what a user wrote to what the rest of the code may rely on.
//!
//! A [`ValidSpec`] holds no raw text that could still turn out wrong: after it nobody parses a time zone, a duration or
//! an API group again. What is wrong comes back all at once, each finding with the path of its field, the rule it
//! breaks and the text that broke it, so that one edit can mend it.

mod cluster_name;
mod inline_object;
mod kill_if_commands;
mod machine_template;
mod node_taints;
pub mod rules;
mod schedule;
mod timeouts;

use std::fmt;

use fivespot_api::conditions::ReferencesValid;
use fivespot_api::{MachineTemplate, NodeTaint, ScheduleSpec, ScheduledMachineSpec};
use fivespot_schedule::Schedule;
use jiff::SignedDuration;

pub use inline_object::ProviderObject;

/// A spec in which everything has been looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSpec {
    /// When the machine is in the cluster.
    pub schedule: Schedule,
    /// The bootstrap object to create.
    pub bootstrap: ProviderObject,
    /// The infrastructure object to create.
    pub infrastructure: ProviderObject,
    /// The Cluster to join; a valid label value.
    pub cluster_name: String,
    /// What goes on the Machine besides our own.
    pub machine_template: MachineTemplate,
    /// Higher goes first.
    pub priority: u8,
    /// How long a shutdown may take in all.
    pub graceful_shutdown_timeout: SignedDuration,
    /// How long pods may take to leave.
    pub node_drain_timeout: SignedDuration,
    /// Programs whose start gives the machine back; empty where none are named.
    pub kill_if_commands: Vec<String>,
    /// Taints for the Node, each (key, effect) once.
    pub node_taints: Vec<NodeTaint>,
}

/// By which standard a spec is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// As a new object is: everything the admission policy demands.
    Admission,
    /// As an object is that is stored already, perhaps since before the policy: days without hours, or hours without
    /// days, mean every hour or every day.
    Stored,
}

/// Judges a spec whose object lives in `namespace`.
///
/// Bounds that the schema of the CRD carries (sizes, enums, number ranges) have been judged by whoever stored or read
/// the object; [`document`](crate::document) does so for one that is only a file.
pub fn validate(spec: &ScheduledMachineSpec, namespace: &str, standard: Standard) -> Result<ValidSpec, SpecErrors> {
    let mut findings = Findings::default();
    let cluster_name = cluster_name::check(&spec.cluster_name, &mut findings);
    let graceful_shutdown_timeout =
        timeouts::check(&rules::GRACEFUL_SHUTDOWN_TIMEOUT, &spec.graceful_shutdown_timeout, &mut findings);
    let node_drain_timeout = timeouts::check(&rules::NODE_DRAIN_TIMEOUT, &spec.node_drain_timeout, &mut findings);
    let schedule = schedule::check(&spec.schedule, standard, &mut findings);
    let bootstrap = inline_object::check(&rules::BOOTSTRAP, &spec.bootstrap_spec, namespace, &mut findings);
    let infrastructure =
        inline_object::check(&rules::INFRASTRUCTURE, &spec.infrastructure_spec, namespace, &mut findings);
    let machine_template = machine_template::check(spec.machine_template.as_ref(), &mut findings);
    let commands = spec.kill_if_commands.as_deref().unwrap_or_default();
    let kill_if_commands = kill_if_commands::check(commands, &mut findings);
    let node_taints = node_taints::check(&spec.node_taints, &mut findings);

    // Each part is None exactly when it has a finding, so this is the one place that has to look at both.
    let parts = (cluster_name, graceful_shutdown_timeout, node_drain_timeout, schedule, bootstrap, infrastructure);
    match (parts, machine_template, kill_if_commands, node_taints) {
        (
            (
                Some(cluster_name),
                Some(graceful_shutdown_timeout),
                Some(node_drain_timeout),
                Some(schedule),
                Some(bootstrap),
                Some(infrastructure),
            ),
            Some(machine_template),
            Some(kill_if_commands),
            Some(node_taints),
        ) if findings.0.is_empty() => Ok(ValidSpec {
            schedule,
            bootstrap,
            infrastructure,
            cluster_name,
            machine_template,
            priority: spec.priority,
            graceful_shutdown_timeout,
            node_drain_timeout,
            kill_if_commands,
            node_taints,
        }),
        _ => Err(SpecErrors(findings.0)),
    }
}

/// Judges the schedule alone, for those who ask only when a machine would be in.
pub fn validate_schedule(spec: &ScheduleSpec, standard: Standard) -> Result<Schedule, SpecErrors> {
    let mut findings = Findings::default();
    schedule::check(spec, standard, &mut findings).ok_or(SpecErrors(findings.0))
}

/// Everything that is wrong with a spec; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SpecErrors(Vec<SpecError>);

impl SpecErrors {
    /// Each finding.
    pub fn iter(&self) -> impl Iterator<Item = &SpecError> {
        self.0.iter()
    }

    /// What is wrong with the schedule, if anything is.
    pub fn of_schedule(&self) -> Option<Self> {
        let findings: Vec<SpecError> = self.0.iter().filter(|it| it.is_of_schedule()).cloned().collect();
        (!findings.is_empty()).then_some(SpecErrors(findings))
    }

    /// What is wrong with the rest, as the condition `ReferencesValid` calls it.
    pub fn reference(&self) -> Option<ReferencesValid> {
        let reason = |it: &SpecError| match it.field.rsplit('.').next() {
            Some("apiVersion") => ReferencesValid::GroupNotAllowed,
            Some("namespace") => ReferencesValid::NamespaceNotAllowed,
            Some(_) | None => ReferencesValid::InvalidSpec,
        };
        self.0.iter().find(|it| !it.is_of_schedule()).map(reason)
    }
}

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}{}", .detail.as_ref().map(|it| format!(" ({it})")).unwrap_or_default())]
pub struct SpecError {
    /// Path of the field, such as `spec.schedule.cron`.
    pub field: String,
    /// The rule, in the words of the admission policy; it names the field.
    pub rule: String,
    /// What broke it, where the rule alone does not show that.
    pub detail: Option<String>,
    /// Who says so, where the object is a cluster's.
    pub judge: Judge,
}

/// Who refuses a spec that its schema accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The admission policy: the object is not stored.
    Policy,
    /// The controller: the object is stored, and its status says what is wrong. These are the things that no expression
    /// of a policy can know, such as the names of time zones.
    Controller,
}

impl SpecError {
    fn is_of_schedule(&self) -> bool {
        self.field.starts_with("spec.schedule")
    }
}

/// Collects what is wrong while a spec is walked.
#[derive(Default)]
struct Findings(Vec<SpecError>);

impl Findings {
    /// Something that the admission policy refuses too.
    fn add(&mut self, field: impl Into<String>, rule: impl Into<String>, detail: Option<String>) {
        self.0.push(SpecError { field: field.into(), rule: rule.into(), detail, judge: Judge::Policy });
    }

    /// Whether nothing has been found since `mark`.
    fn none_since(&self, mark: usize) -> bool {
        self.0.len() == mark
    }

    fn mark(&self) -> usize {
        self.0.len()
    }
}
