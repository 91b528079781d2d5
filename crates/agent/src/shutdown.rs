//! Shutdown on SIGTERM or SIGINT.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Runs `cleanup` and exits with code 0 when a signal arrives. A thread of its own waits for it, because the detector blocks
/// in system calls.
pub(crate) fn on_signal(cleanup: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().name("shutdown".into()).spawn(move || {
        if signals.forever().next().is_some() {
            cleanup();
            std::process::exit(0);
        }
    })?;
    Ok(())
}
