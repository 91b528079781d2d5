//! Exits this process when its owner exits.
//!
//! `cargo xtask test` starts test binaries through `cargo`, which outlives a killed xtask; without this the test binary and
//! its servers would too.

use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The environment variable with the owner's process ID.
pub const OWNER_PID: &str = "FIVESPOT_OWNER_PID";

/// The exit code if the owner has exited.
const OWNER_EXITED: i32 = 70;

/// Starts a thread that exits this process when the owner exits. Does nothing without an owner.
pub(super) fn exit_with_owner() {
    let Some(owner) = std::env::var(OWNER_PID).ok().and_then(|text| Pid::from_raw(text.parse().ok()?)) else { return };
    match pidfd_open(owner, PidfdFlags::empty()) {
        Ok(owner) => {
            thread::Builder::new()
                .name("owner-watch".to_owned())
                .spawn(move || exit_after(&owner))
                .expect("a thread can be spawned");
        }
        Err(rustix::io::Errno::SRCH) => std::process::exit(OWNER_EXITED),
        // The kernel has no pidfds. Children are still killed when this process dies.
        Err(_) => {}
    }
}

fn exit_after(owner: &OwnedFd) {
    loop {
        let mut watched = [PollFd::new(owner, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) => std::process::exit(OWNER_EXITED),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
