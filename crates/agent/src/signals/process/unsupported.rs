//! Replaces [`netlink`](self) on systems without a proc connector.

use std::convert::Infallible;

use super::Scope;
use crate::signals::SignalError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlinkError {
    #[error("the proc connector exists only on Linux")]
    Unsupported,
}

/// Cannot be opened.
pub(crate) enum Listener {}

impl Listener {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Err(NetlinkError::Unsupported)
    }

    pub(super) fn run(&self, _: impl FnMut(Scope) -> Result<(), SignalError>) -> Result<Infallible, SignalError> {
        match *self {}
    }

    pub(super) fn unsubscribe(&self) {
        match *self {}
    }
}
