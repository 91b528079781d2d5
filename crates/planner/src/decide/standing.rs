//! Where a machine stands, told for the status.

use fivespot_api::conditions::{Ready, ReferencesValid};
use fivespot_api::{Phase, ReclaimStatus};

use super::Situation;
use crate::observed::{Cluster, Refs, Slot};
use crate::plan::{Action, Standing};
use fivespot_validation::validate::SpecErrors;

/// A standing that keeps all that the status remembers.
pub(super) fn keeping(situation: &Situation<'_>, phase: Phase, ready: Ready, message: impl Into<String>) -> Standing {
    let stored = &situation.seen.stored;
    Standing {
        phase,
        ready,
        references: references(situation),
        message: message.into(),
        refs: stored.refs.clone().or_else(|| lost_refs(situation)),
        shutdown_started_at: stored.shutdown_started_at,
        reclaim: reclaim(situation),
        taints: None,
    }
}

/// What a machine that lives was made with, where somebody took that out of the status: what the spec names, unless it was
/// edited since.
fn lost_refs(situation: &Situation<'_>) -> Option<Refs> {
    situation.seen.machine.ours()?;
    situation.seen.wanted.as_ref().map(|it| it.refs.clone())
}

/// A standing of one of whom nothing is left but the memory of a reclaim.
pub(super) fn empty(situation: &Situation<'_>, phase: Phase, ready: Ready, message: impl Into<String>) -> Standing {
    Standing { refs: None, shutdown_started_at: None, ..keeping(situation, phase, ready, message) }
}

/// Our finalizer, where somebody took it off: without it a deletion would not wait for the machine.
pub(super) fn missing_finalizer(situation: &Situation<'_>) -> Option<Action> {
    (!situation.seen.finalizer && !situation.intent.deleted).then_some(Action::AddFinalizer)
}

/// The same, where a machine is only held: one that is not there needs none.
pub(super) fn finalizer_of_a_machine(situation: &Situation<'_>) -> Option<Action> {
    let there = situation.seen.machine.ours().is_some() || situation.seen.stored.refs.is_some();
    missing_finalizer(situation).filter(|_| there)
}

/// The last reclaim. Once a person has enabled the schedule again, it is not disabled for that reclaim any more.
fn reclaim(situation: &Situation<'_>) -> Option<ReclaimStatus> {
    let stored = &situation.seen.stored;
    let enabled_again = situation.intent.enabled && !stored.reclaiming;
    let forgiven =
        |it: ReclaimStatus| ReclaimStatus { schedule_disabled: it.schedule_disabled && !enabled_again, ..it };
    stored.reclaim.clone().map(forgiven)
}

/// Whether what the spec names can be used.
pub(super) fn references(situation: &Situation<'_>) -> ReferencesValid {
    let seen = situation.seen;
    if let Some(wrong) = situation.spec.err().and_then(SpecErrors::reference) {
        return wrong;
    }
    let taken = matches!(seen.machine, Slot::Foreign(_))
        || [&seen.bootstrap, &seen.infrastructure].iter().any(|it| matches!(it, Slot::Foreign(_)));
    match seen.cluster {
        _ if taken => ReferencesValid::NameConflict,
        Cluster::Missing => ReferencesValid::ClusterNotFound,
        Cluster::Deleting => ReferencesValid::ClusterDeleting,
        Cluster::Paused => ReferencesValid::ClusterPaused,
        Cluster::Present if is_edited(situation) => ReferencesValid::ValidNextWindow,
        Cluster::Present => ReferencesValid::Valid,
    }
}

/// Whether the machine that lives was made from a spec that has been edited since.
fn is_edited(situation: &Situation<'_>) -> bool {
    let made_from = situation.seen.machine.ours().and_then(|it| it.fingerprint.as_ref());
    let wanted = situation.seen.wanted.as_ref().map(|it| &it.fingerprint);
    made_from.is_some_and(|made_from| wanted.is_some_and(|wanted| wanted != made_from))
}
