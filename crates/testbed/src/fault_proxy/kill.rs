//! Kills a process and waits for its death.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Sends SIGKILL and blocks until the process is dead.
pub(super) fn kill(pid: u32) -> io::Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(raw, PidfdFlags::empty())?;
    pidfd_send_signal(&process, Signal::KILL)?;
    loop {
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn process_is_dead_when_kill_returns() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        kill(child.id()).unwrap();
        assert_eq!(child.try_wait().unwrap().and_then(|it| it.signal()), Some(9));
    }
}
