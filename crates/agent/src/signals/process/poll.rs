//! Periodic scans: work everywhere, but miss processes that exit between two scans.

use std::convert::Infallible;

use super::Scope;
use crate::signals::SignalError;

pub(super) fn run(
    mut scan: impl FnMut(Scope) -> Result<(), SignalError>,
    mut wait: impl FnMut(),
) -> Result<Infallible, SignalError> {
    loop {
        scan(Scope::All)?;
        wait();
    }
}
