//! Children that the kernel kills when this process dies.
//!
//! The kernel's parent-death signal fires when the *thread* that made the child ends, and test threads end with their
//! test. So one thread, which lives as long as the process, starts every child.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::lifeline;

type Job = Box<dyn FnOnce() + Send>;

/// Starts a child that dies with this process.
pub(crate) fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    bind_to_parent(command);
    // Ctrl-C goes to the terminal's process group: we decide when a server ends, not the terminal.
    command.process_group(0);
    let mut owned = std::mem::replace(command, Command::new(""));
    let (answer, answered) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        // The receiver waits below; it cannot be gone.
        let _ = answer.send(owned.spawn());
    });
    spawner().send(job).map_err(|_| io::Error::other("the thread that starts children has ended"))?;
    answered.recv().map_err(|_| io::Error::other("the thread that starts children has ended"))?
}

fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        lifeline::hold();
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("starts-children".to_owned())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .expect("a thread can be started");
        jobs
    })
}

#[expect(unsafe_code, reason = "nothing but code in the child between fork and exec can set its parent-death signal")]
fn bind_to_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. It makes two
    // system calls (prctl, getppid), touches no lock and allocates nothing; `io::Error` from an errno does not either.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // Had the parent died before the call above, the signal would never come.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(3)) }
        });
    }
}
