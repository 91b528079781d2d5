//! A scan every so often: it works everywhere, and misses what ends between two scans.

use std::convert::Infallible;
use std::time::Duration;

use super::Hint;

pub(super) fn run<E>(interval: Duration, mut look: impl FnMut(Hint) -> Result<(), E>) -> Result<Infallible, E> {
    loop {
        look(Hint::All)?;
        std::thread::sleep(interval);
    }
}
