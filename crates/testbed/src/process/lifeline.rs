//! Ends this process when the one that owns it is gone.
//!
//! Between `cargo xtask test` and a test binary stands `cargo`, which outlives an xtask that was killed, and so would
//! the servers.

use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The environment variable that names the owner's process id.
pub const OWNER_PID: &str = "FIVESPOT_OWNER_PID";

/// Exit code of a process whose owner went away.
const OWNER_GONE: i32 = 70;

/// Starts to watch the owner, if there is one.
pub(super) fn hold() {
    let Some(owner) = std::env::var(OWNER_PID).ok().and_then(|text| Pid::from_raw(text.parse().ok()?)) else { return };
    match pidfd_open(owner, PidfdFlags::empty()) {
        Ok(owner) => {
            thread::Builder::new()
                .name("owner-lifeline".to_owned())
                .spawn(move || exit_after(&owner))
                .expect("a thread can be started");
        }
        Err(rustix::io::Errno::SRCH) => std::process::exit(OWNER_GONE),
        // A kernel without pidfds: the children still die with this process.
        Err(_) => {}
    }
}

fn exit_after(owner: &OwnedFd) {
    loop {
        let mut watched = [PollFd::new(owner, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) => std::process::exit(OWNER_GONE),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
