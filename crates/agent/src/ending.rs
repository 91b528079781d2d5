//! The end that somebody else decides on.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Ends the process with exit code 0 at SIGTERM or SIGINT, after this last act. The agent waits in calls to the kernel
/// that know no end, so a thread of its own waits for the signal.
pub(crate) fn at_a_signal(last_act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::Builder::new().spawn(move || {
        if signals.forever().next().is_some() {
            last_act();
            std::process::exit(0);
        }
    })?;
    Ok(())
}
