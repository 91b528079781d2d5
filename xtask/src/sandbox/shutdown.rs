//! SIGINT (Ctrl-C) and SIGTERM.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Installs the handlers: from now on neither signal ends the process by itself.
    pub(super) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot install a signal handler");
        Ok(ShutdownSignals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
