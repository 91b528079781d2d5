//! A scan every so often: it works everywhere, and misses what ends between two scans.

use std::convert::Infallible;

use super::Hint;

pub(super) fn run<E>(mut look: impl FnMut(Hint) -> Result<(), E>, mut rest: impl FnMut()) -> Result<Infallible, E> {
    loop {
        look(Hint::All)?;
        rest();
    }
}
