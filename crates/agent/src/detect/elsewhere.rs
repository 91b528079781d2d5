//! The proc connector where there is none.

use std::convert::Infallible;
use std::io;

use super::{Ended, Hint};

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
#[error("the proc connector is Linux's own")]
pub(crate) struct Refused;

/// There is none.
pub(crate) enum Listener {}

impl Listener {
    pub(super) fn open() -> Result<Self, Refused> {
        Err(Refused)
    }

    pub(super) fn run<E>(self, _: impl FnMut(Hint) -> Result<(), E>) -> Result<Infallible, Ended<E>> {
        match self {}
    }

    pub(super) fn farewell(&self) -> io::Result<impl FnOnce() + Send + 'static> {
        match *self {}
        #[expect(unreachable_code, reason = "it gives the opaque type a form")]
        Ok(|| ())
    }
}
