//! Where a machine stands, told for the status.

use fivespot_api::Phase;
use fivespot_api::conditions::{Ready, ReferencesValid};

use super::Situation;
use crate::observed::{Cluster, Slot};
use crate::plan::Standing;

/// A standing that keeps all that the status remembers.
pub(super) fn keeping(situation: &Situation<'_>, phase: Phase, ready: Ready, message: impl Into<String>) -> Standing {
    let stored = &situation.seen.stored;
    Standing {
        phase,
        ready,
        references: references(situation),
        message: message.into(),
        refs: stored.refs.clone(),
        shutdown_started_at: stored.shutdown_started_at,
        reclaim: stored.reclaim.clone(),
    }
}

/// A standing of one of whom nothing is left but the memory of a reclaim.
pub(super) fn empty(situation: &Situation<'_>, phase: Phase, ready: Ready, message: impl Into<String>) -> Standing {
    Standing { refs: None, shutdown_started_at: None, ..keeping(situation, phase, ready, message) }
}

/// Whether what the spec names can be used.
fn references(situation: &Situation<'_>) -> ReferencesValid {
    let seen = situation.seen;
    if situation.spec.is_err() {
        return ReferencesValid::InvalidSpec;
    }
    let taken = matches!(seen.machine, Slot::Foreign)
        || [&seen.bootstrap, &seen.infrastructure].iter().any(|it| matches!(it, Slot::Foreign));
    match seen.cluster {
        _ if taken => ReferencesValid::NameConflict,
        Cluster::Missing => ReferencesValid::ClusterNotFound,
        Cluster::Deleting => ReferencesValid::ClusterDeleting,
        Cluster::Paused => ReferencesValid::ClusterPaused,
        Cluster::Present => ReferencesValid::Valid,
    }
}
