//! The agent in a dry run whose output is read, and cgroups for programs to run in.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::fixtures::{ChildProcess, TIMEOUT, agent_command, link_program, start_program};

/// A directory with a configuration and programs. Each test uses program names of its own.
pub(crate) struct TestEnv {
    directory: TempDir,
}

impl TestEnv {
    pub(crate) fn new(config: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("reclaim.toml"), config).unwrap();
        TestEnv { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn link_program(&self, name: &str) -> PathBuf {
        link_program(self.directory.path(), name)
    }

    pub(crate) fn start_program(&self, name: &str) -> ChildProcess {
        start_program(self.directory.path(), name)
    }

    /// The agent's command line with this configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_command();
        command.arg("--config").arg(self.path("reclaim.toml")).args(arguments);
        command
    }

    pub(crate) fn oneshot(&self) -> Output {
        self.command(&["--oneshot"]).output().unwrap()
    }

    /// An armed agent in a dry run.
    pub(crate) fn dry_run(&self, detector: &str) -> DryRun {
        DryRun::start(self.command(&["--dry-run", "--detector", detector]))
    }
}

/// An armed agent in a dry run, and the lines that it prints.
pub(crate) struct DryRun {
    process: ChildProcess,
    pub(crate) detector: String,
    lines: Receiver<String>,
}

impl DryRun {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = ChildProcess(command.stdout(Stdio::piped()).spawn().unwrap());
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the agent's output.
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let agent = DryRun { process, lines, detector: String::new() };
        let armed = agent.next_line();
        assert_eq!(armed["event"], "armed", "{armed}");
        let detector = armed["detector"].as_str().unwrap().to_owned();
        DryRun { detector, ..agent }
    }

    pub(crate) fn next_line(&self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).expect("another line of output");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// The next line must be this match.
    #[track_caller]
    pub(crate) fn expect_match(&self, pid: u32, matched: &str, source: &str) -> Value {
        let line = self.next_line();
        assert_eq!(line["event"], "match", "{line}");
        assert_eq!((&line["pid"], &line["matched"], &line["source"]), (&pid.into(), &matched.into(), &source.into()));
        let at = line["at"].as_str().unwrap();
        at.parse::<jiff::Timestamp>().unwrap_or_else(|error| panic!("{at}: {error}"));
        line
    }

    /// How many bytes the agent has read so far, as counted by the kernel.
    pub(crate) fn bytes_read(&self) -> usize {
        let counters = std::fs::read_to_string(format!("/proc/{}/io", self.process.pid())).unwrap();
        counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }

    /// Terminates the agent and returns the remaining lines.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.process.signal(Signal::TERM);
        let remaining = self.lines.iter().collect();
        assert_eq!(self.process.0.wait().unwrap().code(), Some(0));
        remaining
    }
}

/// A cgroup, removed with the test.
pub(crate) struct Cgroup {
    root: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// The first component of `name` must be unique to the test.
    pub(crate) fn create(hierarchy: &Path, name: &str) -> Self {
        let root = hierarchy.join(name.split('/').next().unwrap());
        let path = hierarchy.join(name);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Cgroup { root, path }
    }

    /// A shell that joins this cgroup and then executes its arguments.
    pub(crate) fn enter(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Innermost first. A cgroup whose process is still exiting cannot be removed and stays behind, empty.
        for directory in self.path.ancestors().take_while(|path| path.starts_with(&self.root)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The mount point of v2, and those of v1 if there are any.
pub(crate) fn cgroup_hierarchies() -> (PathBuf, Vec<PathBuf>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount_points = |filesystem: &str| -> Vec<PathBuf> {
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        fields.filter(|fields| fields[2] == filesystem).map(|fields| fields[1].into()).collect()
    };
    let v2 = mount_points("cgroup2").into_iter().next().expect("a mounted cgroup2");
    (v2, mount_points("cgroup"))
}
