//! Validates and parses a spec.
//!
//! A [`ValidSpec`] contains parsed values only: no later code parses a time zone, a duration or an API group. Validation
//! reports all errors, each with the path of the field, the violated rule and the offending text, so that users can fix them
//! with one edit.

mod cluster_name;
mod inline_object;
mod kill_if_commands;
mod machine_template;
mod node_taints;
mod schedule;
mod timeouts;

use std::fmt;

use fivespot_api::conditions::ReferencesValid;
use fivespot_api::{MachineTemplate, NodeTaint, ScheduleSpec, ScheduledMachineSpec};
use fivespot_schedule::Schedule;
use jiff::SignedDuration;

use crate::inline_spec::InlineSpecSummaries;
use crate::rules;

pub use inline_object::ProviderObject;

/// A valid spec, parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSpec {
    pub schedule: Schedule,
    pub bootstrap: ProviderObject,
    pub infrastructure: ProviderObject,
    /// Name of the Cluster; a valid label value.
    pub cluster_name: String,
    pub machine_template: MachineTemplate,
    /// Higher is more important.
    pub priority: u8,
    pub graceful_shutdown_timeout: SignedDuration,
    pub node_drain_timeout: SignedDuration,
    /// Empty if not set.
    pub kill_if_commands: Vec<String>,
    /// Each pair of key and effect is unique.
    pub node_taints: Vec<NodeTaint>,
}

/// How strictly a spec is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// For new objects: all rules of the admission policy.
    Admission,
    /// For stored objects, which may be older than the admission policy: days without hours mean every hour, and hours
    /// without days mean every day.
    Stored,
}

/// Validates the spec of an object in `namespace`.
///
/// Does not validate what the schema of the CRD defines (sizes, enums, ranges of numbers): the API server does so for stored
/// objects, and [`manifest`](crate::manifest) for files.
pub fn validate(spec: &ScheduledMachineSpec, namespace: &str, standard: Standard) -> Result<ValidSpec, SpecErrors> {
    check(spec, &InlineSpecSummaries::of(spec), namespace, standard)
}

/// The spec of a stored object, as the controller keeps it.
#[derive(Clone, Copy, Debug)]
pub struct StoredSpec<'a> {
    /// Without the specs of the inline objects. A field that cannot be read has its default.
    pub spec: &'a ScheduledMachineSpec,
    pub inline: &'a InlineSpecSummaries,
    pub unreadable: &'a [UnreadableField],
}

/// A field of a stored object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableField {
    /// Path of the field, such as `spec.machineTemplate`.
    pub field: String,
    pub cause: String,
}

impl UnreadableField {
    fn contains(&self, field: &str) -> bool {
        field.strip_prefix(&self.field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// Validates the spec of a stored object in `namespace`. A field that cannot be read is an error.
pub fn validate_stored(stored: StoredSpec<'_>, namespace: &str) -> Result<ValidSpec, SpecErrors> {
    let validated = check(stored.spec, stored.inline, namespace, Standard::Stored);
    if stored.unreadable.is_empty() {
        return validated;
    }
    let unreadable = stored.unreadable.iter().map(|it| SpecError {
        field: it.field.clone(),
        rule: format!("{} cannot be read: correct or remove it", it.field),
        detail: Some(it.cause.clone()),
        enforced_by: EnforcedBy::Controller,
    });
    // The default that stands for an unreadable field may be invalid too, which is not the user's error.
    let is_own = |error: &SpecError| !stored.unreadable.iter().any(|it| it.contains(&error.field));
    let others = validated.err().map(|errors| errors.0).unwrap_or_default().into_iter().filter(is_own);
    Err(SpecErrors(unreadable.chain(others).collect()))
}

fn check(
    spec: &ScheduledMachineSpec,
    inline: &InlineSpecSummaries,
    namespace: &str,
    standard: Standard,
) -> Result<ValidSpec, SpecErrors> {
    let mut errors = ErrorList::default();
    let cluster_name = cluster_name::check(&spec.cluster_name, &mut errors);
    let graceful_shutdown_timeout =
        timeouts::check(&rules::GRACEFUL_SHUTDOWN_TIMEOUT, &spec.graceful_shutdown_timeout, &mut errors);
    let node_drain_timeout = timeouts::check(&rules::NODE_DRAIN_TIMEOUT, &spec.node_drain_timeout, &mut errors);
    let schedule = schedule::check(&spec.schedule, standard, &mut errors);
    let bootstrap =
        inline_object::check(&rules::BOOTSTRAP, (&spec.bootstrap_spec, &inline.bootstrap), namespace, &mut errors);
    let infrastructure = (&spec.infrastructure_spec, &inline.infrastructure);
    let infrastructure = inline_object::check(&rules::INFRASTRUCTURE, infrastructure, namespace, &mut errors);
    let machine_template = machine_template::check(spec.machine_template.as_ref(), &mut errors);
    let commands = spec.kill_if_commands.as_deref().unwrap_or_default();
    let kill_if_commands = kill_if_commands::check(commands, &mut errors);
    let node_taints = node_taints::check(&spec.node_taints, &mut errors);

    // A part is None if and only if it has an error.
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
        ) if errors.0.is_empty() => Ok(ValidSpec {
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
        _ => Err(SpecErrors(errors.0)),
    }
}

/// Validates only the schedule.
pub fn validate_schedule(spec: &ScheduleSpec, standard: Standard) -> Result<Schedule, SpecErrors> {
    let mut errors = ErrorList::default();
    schedule::check(spec, standard, &mut errors).ok_or(SpecErrors(errors.0))
}

/// All errors of a spec; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SpecErrors(Vec<SpecError>);

impl SpecErrors {
    pub fn iter(&self) -> impl Iterator<Item = &SpecError> {
        self.0.iter()
    }

    /// The errors of the schedule, or `None` if there are none.
    pub fn of_schedule(&self) -> Option<Self> {
        let errors: Vec<SpecError> = self.0.iter().filter(|error| error.is_of_schedule()).cloned().collect();
        (!errors.is_empty()).then_some(SpecErrors(errors))
    }

    /// The reason of the condition `ReferencesValid` for the first error outside of the schedule.
    pub fn reference(&self) -> Option<ReferencesValid> {
        let reason = |error: &SpecError| match error.field.rsplit('.').next() {
            Some("apiVersion") => ReferencesValid::GroupNotAllowed,
            Some("namespace") => ReferencesValid::NamespaceNotAllowed,
            Some(_) | None => ReferencesValid::InvalidSpec,
        };
        self.0.iter().find(|error| !error.is_of_schedule()).map(reason)
    }
}

/// How many errors a message lists. A spec can have hundreds, each with a text of the user.
const MAX_DISPLAYED: usize = 10;
/// Limit of one error in a message, in bytes.
const MAX_ERROR_LEN: usize = 600;

fn shortened(mut text: String) -> String {
    if text.len() > MAX_ERROR_LEN {
        text.truncate(text.floor_char_boundary(MAX_ERROR_LEN));
        text.push('…');
    }
    text
}

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().take(MAX_DISPLAYED).enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&shortened(error.to_string()))?;
        }
        match self.0.len().saturating_sub(MAX_DISPLAYED) {
            0 => Ok(()),
            1 => f.write_str("; and 1 more error"),
            more => write!(f, "; and {more} more errors"),
        }
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}{}", .detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default())]
pub struct SpecError {
    /// Path of the field, such as `spec.schedule.cron`.
    pub field: String,
    /// The message of the rule, as in the admission policy.
    pub rule: String,
    /// The offending text or the cause, unless the message of the rule is sufficient.
    pub detail: Option<String>,
    pub enforced_by: EnforcedBy,
}

/// The component that rejects a spec in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedBy {
    /// The admission policy: the API server does not store the object.
    Policy,
    /// The controller: the object is stored, and the controller reports the error in its status. This applies to errors that
    /// CEL expressions cannot detect, such as an unknown time zone.
    Controller,
}

impl SpecError {
    fn is_of_schedule(&self) -> bool {
        self.field.starts_with("spec.schedule")
    }
}

/// Collects the errors of a spec.
#[derive(Default)]
struct ErrorList(Vec<SpecError>);

impl ErrorList {
    /// Adds an error that the admission policy detects.
    fn add(&mut self, field: impl Into<String>, rule: impl Into<String>, detail: Option<String>) {
        let enforced_by = EnforcedBy::Policy;
        self.0.push(SpecError { field: field.into(), rule: rule.into(), detail, enforced_by });
    }

    /// Adds an error that only the controller detects.
    fn add_for_controller(&mut self, field: String, rule: &str, detail: String) {
        let enforced_by = EnforcedBy::Controller;
        self.0.push(SpecError { field, rule: rule.to_owned(), detail: Some(detail), enforced_by });
    }

    /// Returns the current number of errors, to be passed to [`Self::none_since`].
    fn checkpoint(&self) -> usize {
        self.0.len()
    }

    fn none_since(&self, checkpoint: usize) -> bool {
        self.0.len() == checkpoint
    }
}
