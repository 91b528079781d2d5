//! Constructors of [`DesiredStatus`].

use fivespot_api::conditions::{Ready, ReferencesValid};
use fivespot_api::{Phase, ReclaimStatus};
use fivespot_validation::validate::SpecErrors;

use crate::input::DecisionInput;
use crate::machine_failure;
use crate::observed::{Child, Cluster, Refs};
use crate::plan::{DesiredStatus, Step};

/// Keeps everything that the status has stored.
pub(super) fn keeping(
    input: &DecisionInput<'_>,
    phase: Phase,
    ready: Ready,
    message: impl Into<String>,
) -> DesiredStatus {
    let stored = &input.observed.stored;
    DesiredStatus {
        phase,
        ready,
        references: references(input),
        message: message.into(),
        connecting: false,
        delete_by: None,
        refs: stored.refs.clone().or_else(|| lost_refs(input)),
        shutdown_started_at: input.shutdown_started_at(),
        initial_pods: stored.initial_pods(),
        machine_failure: machine_failure::stored(input),
        reclaim: reclaim(input),
        taints: None,
    }
}

/// Keeps only the records of the last reclaim and of the last failed Machine: no child is left.
pub(super) fn empty(
    input: &DecisionInput<'_>,
    phase: Phase,
    ready: Ready,
    message: impl Into<String>,
) -> DesiredStatus {
    DesiredStatus { refs: None, shutdown_started_at: None, ..keeping(input, phase, ready, message) }
}

/// If the refs were removed from the status while the Machine exists, the spec is the best guess: it names the same
/// objects unless it was edited since.
fn lost_refs(input: &DecisionInput<'_>) -> Option<Refs> {
    input.observed.machine.managed()?;
    input.observed.desired.as_ref().map(|desired| desired.refs.clone())
}

/// Restores the finalizer if another client removed it: without it, a deletion would not wait for the machine.
pub(super) fn missing_finalizer(input: &DecisionInput<'_>) -> Option<Step> {
    (!input.observed.has_finalizer && !input.requested.deleted).then_some(Step::AddFinalizer)
}

/// The same for an object that creates nothing at the moment: the finalizer is needed only if children exist.
pub(super) fn finalizer_for_children(input: &DecisionInput<'_>) -> Option<Step> {
    let has_children = input.observed.machine.managed().is_some() || input.observed.stored.refs.is_some();
    missing_finalizer(input).filter(|_| has_children)
}

/// The record of the last reclaim. Once the schedule has been enabled again, that reclaim no longer disables it.
fn reclaim(input: &DecisionInput<'_>) -> Option<ReclaimStatus> {
    let stored = &input.observed.stored;
    let enabled_again = input.requested.enabled && !stored.reclaim_in_progress();
    let update = |reclaim: ReclaimStatus| ReclaimStatus {
        schedule_disabled: reclaim.schedule_disabled && !enabled_again,
        ..reclaim
    };
    stored.reclaim.clone().map(update)
}

/// Reason of condition `ReferencesValid`.
pub(super) fn references(input: &DecisionInput<'_>) -> ReferencesValid {
    let observed = input.observed;
    if let Some(reason) = input.spec.err().and_then(SpecErrors::reference) {
        return reason;
    }
    let name_taken = matches!(observed.machine, Child::Unmanaged(_))
        || [&observed.bootstrap, &observed.infrastructure].iter().any(|child| matches!(child, Child::Unmanaged(_)));
    match observed.cluster {
        _ if name_taken => ReferencesValid::NameConflict,
        Cluster::Missing => ReferencesValid::ClusterNotFound,
        Cluster::Deleting => ReferencesValid::ClusterDeleting,
        Cluster::Paused => ReferencesValid::ClusterPaused,
        Cluster::Present if is_edited(input) => ReferencesValid::ValidNextWindow,
        Cluster::Present => ReferencesValid::Valid,
    }
}

/// Whether the spec was edited since the existing Machine was created.
fn is_edited(input: &DecisionInput<'_>) -> bool {
    let created_from = input.observed.machine.managed().and_then(|machine| machine.fingerprint.as_ref());
    let desired = input.observed.desired.as_ref().map(|desired| &desired.fingerprint);
    created_from.is_some_and(|created_from| desired.is_some_and(|desired| desired != created_from))
}
