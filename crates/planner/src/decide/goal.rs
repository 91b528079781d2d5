//! The end state that a reconcile works towards.
//!
//! Precedence: deletion, emergency reclaim in progress, `killSwitch`, `enabled: false`, schedule. The speed of a removal is
//! the fastest that any of them asks for. A spec that does not parse blocks none of the first four.

use fivespot_validation::validate::SpecErrors;

use super::reclaim_request;
use crate::input::DecisionInput;

#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'a> {
    /// No machine.
    Remove(Removal),
    /// The schedule is disabled: everything stays as it is.
    Keep,
    /// The window is open: a machine exists.
    Run,
    /// The spec is invalid: an existing machine is left alone.
    LeaveAlone(&'a SpecErrors),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) cause: Cause,
    pub(super) speed: Speed,
}

/// Why there is to be no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Deleted,
    Reclaimed,
    KillSwitch,
    WindowClosed,
    /// The Machine failed and is replaced.
    MachineFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    /// The Node is drained first.
    Graceful,
    /// Without drain and timeouts.
    Force,
}

impl<'a> Goal<'a> {
    pub(super) fn of(input: &DecisionInput<'a>) -> Self {
        let DecisionInput { requested, spec, now, .. } = *input;
        let reclaimed = reclaim_request::in_progress(input);
        let remove = |cause: Cause| {
            let speed = if reclaimed || requested.kill_switch { Speed::Force } else { Speed::Graceful };
            Goal::Remove(Removal { cause, speed })
        };
        if requested.deleted {
            return remove(Cause::Deleted);
        }
        if reclaimed {
            return remove(Cause::Reclaimed);
        }
        if requested.kill_switch {
            return remove(Cause::KillSwitch);
        }
        if !requested.enabled {
            return Goal::Keep;
        }
        match spec {
            Err(errors) => Goal::LeaveAlone(errors),
            Ok(spec) if spec.schedule.is_open(now) => Goal::Run,
            Ok(_) => remove(Cause::WindowClosed),
        }
    }
}
