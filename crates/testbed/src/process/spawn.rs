//! Children that the kernel kills when this process dies.
//!
//! The kernel sends the parent-death signal when the *thread* that forked the child exits, and the thread of a test exits
//! with the test. So one thread, which lives as long as the process, forks every child.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::owner;

type Job = Box<dyn FnOnce() + Send>;

/// Starts a child that the kernel kills when this process dies.
pub(crate) fn spawn_child(command: &mut Command) -> io::Result<Child> {
    set_parent_death_signal(command);
    // Otherwise Ctrl-C would end the servers before this process can shut them down in order.
    command.process_group(0);
    let mut owned = std::mem::replace(command, Command::new(""));
    let (sender, receiver) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        // The receiver is waiting below.
        let _ = sender.send(owned.spawn());
    });
    spawner().send(job).map_err(|_| io::Error::other("the spawner thread has exited"))?;
    receiver.recv().map_err(|_| io::Error::other("the spawner thread has exited"))?
}

fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        owner::exit_with_owner();
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .expect("a thread can be spawned");
        jobs
    })
}

#[expect(unsafe_code, reason = "the parent-death signal can only be set in the child, between fork and exec")]
fn set_parent_death_signal(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. It makes two
    // system calls (prctl, getppid), touches no lock and allocates nothing; `io::Error` from an errno does not either.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent died before the call above, the signal is never sent.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(3)) }
        });
    }
}
