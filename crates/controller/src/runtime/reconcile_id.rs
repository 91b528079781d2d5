//! The id that connects what one reconcile logs, traces and publishes.

use std::fmt;

/// Identifies one reconcile: eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReconcileId(u32);

impl ReconcileId {
    pub(crate) fn random() -> Self {
        ReconcileId(fastrand::u32(..))
    }
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
