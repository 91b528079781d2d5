//! A pod that executes programs with long command lines, which nearly match, in a loop.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

/// Runs the benchmark binary as the pod.
pub(crate) const ARGUMENT: &str = "--pod";

/// Every argument consists of repetitions of what all patterns begin with.
const NEAR_MATCH: &str = "storm-near-match-";
const PATTERNS: usize = 100;
/// `MAX_ARG_STRLEN`, and what fits into a quarter of the usual stack limit of 8 MiB.
const ARGUMENT_BYTES: usize = (128 << 10) - 1;
const ARGUMENTS: usize = 15;

/// The patterns that the command lines nearly match.
pub(crate) fn patterns() -> Vec<String> {
    (0..PATTERNS).map(|index| format!("{NEAR_MATCH}{index}")).collect()
}

pub(crate) fn run() -> ! {
    let argument = NEAR_MATCH.repeat(ARGUMENT_BYTES / NEAR_MATCH.len());
    let exec = || loop {
        Command::new("/bin/true").args(vec![&argument; ARGUMENTS]).status().unwrap();
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(exec);
        }
    });
    unreachable!("it is killed")
}

/// The running pod. Killed when dropped, and its cgroup is removed.
pub(crate) struct Pod {
    process: Child,
    root: PathBuf,
    cgroup: PathBuf,
}

impl Pod {
    /// Starts the programs in a cgroup of a pod, or in another one.
    pub(crate) fn start(cgroup: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let v2 = mounts.find(|fields| fields[2] == "cgroup2").expect("a mounted cgroup2")[1].to_owned();
        let root = Path::new(&v2).join(format!("fivespot-storm-{}", std::process::id()));
        let cgroup = root.join(cgroup);
        std::fs::create_dir_all(&cgroup).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(cgroup.join("cgroup.procs"));
        let process = command.arg(std::env::current_exe().unwrap()).arg(ARGUMENT).spawn().unwrap();
        Pod { process, root, cgroup }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The last programs may still be exiting.
        let is_empty = || std::fs::read_to_string(self.cgroup.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty());
        for _ in 0..100 {
            if is_empty() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(20));
        }
        for directory in self.cgroup.ancestors().take_while(|path| path.starts_with(&self.root)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}
