//! Programs that the kernel starts on behalf of a process, with text that the process has chosen.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::env::TestEnv;
use crate::fixtures::ChildProcess;
use crate::{DETECTORS, NO_LINES};

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// Reports its pid and runs until it is killed.
const HANDLER: &str = "#!/bin/sh\necho $$ > \"$0.pid\"\nread line < \"$0.fifo\"\n";
/// The host name is passed in the environment: as an argument it would match.
const CRASH: &str = "echo \"$HOST_NAME\" > /proc/sys/kernel/hostname; kill -SEGV $$";

/// The host's handler of core dumps, replaced until the end of the test.
struct CoreHandler {
    previous: Vec<u8>,
}

impl CoreHandler {
    fn install(program: &Path) -> Self {
        let previous = std::fs::read(CORE_PATTERN).unwrap();
        std::fs::write(CORE_PATTERN, format!("|{} %h", program.display())).unwrap();
        CoreHandler { previous }
    }
}

impl Drop for CoreHandler {
    fn drop(&mut self) {
        std::fs::write(CORE_PATTERN, &self.previous).unwrap();
    }
}

/// Killed when dropped.
struct Handler(Pid);

impl Handler {
    /// Waits until the kernel has started it.
    fn wait_for(program: &Path) -> Self {
        let file = program.with_extension("pid");
        loop {
            let pid = std::fs::read_to_string(&file).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
            match pid {
                Some(pid) => return Handler(Pid::from_raw(pid).unwrap()),
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        kill_process(self.0, Signal::KILL).unwrap();
    }
}

/// With `%h`, which systemd's handler uses, the arguments of the handler contain the name of the pod that crashed.
#[test]
fn handler_of_core_dumps_does_not_match() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-handler']\nmatch_argv_substrings = ['idea-crashed']\n");
        let program = env.path("idea-handler");
        std::fs::write(&program, HANDLER).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new("mkfifo").arg(program.with_extension("fifo")).status().unwrap().success());
        let agent = env.dry_run(detector);

        let installed = CoreHandler::install(&program);
        let mut crash = Command::new("unshare");
        crash.args(["-u", "/bin/sh", "-c", CRASH]).env("HOST_NAME", "idea-crashed-0");
        let _crashed = ChildProcess(crash.spawn().unwrap());
        let handler = Handler::wait_for(&program);
        drop(installed);
        let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", handler.0.as_raw_pid())).unwrap();
        assert!(arguments.contains("idea-crashed-0"), "{arguments}");

        // A match of the handler would precede this one.
        let mut owner = Command::new("/bin/sh");
        owner.args(["-c", "read line", "idea-crashed-0"]).stdin(Stdio::piped());
        let owner = ChildProcess(owner.spawn().unwrap());
        agent.expect_match(owner.pid(), "idea-crashed", "cmdline");
        assert_eq!(agent.stop(), NO_LINES);
    }
}
