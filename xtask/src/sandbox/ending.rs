//! Ctrl-C, and the signal by which a process is asked to end.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whoever may ask a sandbox to end.
pub(super) struct Ending {
    interrupt: Signal,
    terminate: Signal,
}

impl Ending {
    /// Listens from now on: neither signal ends the process by itself any more.
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        Ok(Ending { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Returns when somebody asks.
    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
