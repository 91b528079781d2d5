//! What it all should come to: who is asked decides the end.

use super::{Situation, reclaim};
use fivespot_validation::validate::SpecErrors;

/// The end that a pass works towards.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim<'a> {
    /// There shall be no machine.
    Remove(Removal),
    /// The schedule is disabled: all stays as it is.
    Hold,
    /// The window is open: there shall be a machine.
    Run,
    /// Nobody can tell what is wanted: a machine that lives is left alone.
    LeaveAlone(&'a SpecErrors),
}

/// Why there shall be no machine, and how fast it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) because: Because,
    pub(super) speed: Speed,
}

/// Why there shall be no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// The object is being deleted.
    Deleted,
    /// The owner wants it back.
    Reclaimed,
    /// The kill switch is on.
    Killed,
    /// The window is closed.
    Closed,
    /// It is of no use any more, and made anew.
    Failed,
}

/// How fast a machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    /// Pods are asked to leave, and waited for.
    Graceful,
    /// At once.
    Eject,
}

impl<'a> Aim<'a> {
    pub(super) fn of(situation: &Situation<'a>) -> Self {
        let Situation { intent, spec, now, .. } = *situation;
        let reclaimed = reclaim::is_under_way(situation);
        let remove = |because: Because| {
            let speed = if reclaimed || intent.killed { Speed::Eject } else { Speed::Graceful };
            Aim::Remove(Removal { because, speed })
        };
        if intent.deleted {
            return remove(Because::Deleted);
        }
        if reclaimed {
            return remove(Because::Reclaimed);
        }
        if intent.killed {
            return remove(Because::Killed);
        }
        if !intent.enabled {
            return Aim::Hold;
        }
        match spec {
            Err(errors) => Aim::LeaveAlone(errors),
            Ok(spec) if spec.schedule.is_open(now) => Aim::Run,
            Ok(_) => remove(Because::Closed),
        }
    }
}
