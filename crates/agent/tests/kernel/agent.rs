//! The agent as a process whose lines are read, and programs for it to find.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Generous: nothing is asserted about time, and a test must not wait for ever.
const SOON: Duration = Duration::from_mins(5);

/// Ends a process, whatever becomes of the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with a configuration and programs that nobody else runs: names are of this test alone.
pub(crate) struct Stage {
    directory: TempDir,
}

impl Stage {
    pub(crate) fn new(config: &str) -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("reclaim.toml"), config).unwrap();
        Stage { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program of this name that runs until it is ended. A link, since a copy may not be run while any child that was
    /// started meanwhile still has it open for writing.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let program = self.path(name);
        if !program.exists() {
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        }
        program
    }

    pub(crate) fn start(&self, name: &str) -> Running {
        Running(Command::new(self.program(name)).arg("600").spawn().unwrap())
    }

    /// The agent's command line, with this configuration.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot-reclaim-agent"));
        command.arg("--config").arg(self.path("reclaim.toml")).args(arguments);
        command
    }

    pub(crate) fn oneshot(&self) -> Output {
        self.agent(&["--oneshot"]).output().unwrap()
    }

    /// The agent, watching with this detector, once it is armed.
    pub(crate) fn watch(&self, detector: &str) -> Watch {
        Watch::start(self.agent(&["--dry-run", "--detector", detector]))
    }
}

/// An agent that runs, and its lines.
pub(crate) struct Watch {
    pub(crate) process: Running,
    pub(crate) detector: String,
    lines: Receiver<String>,
}

impl Watch {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let (told, lines) = channel();
        // It ends with the agent's output.
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| told.send(line).is_ok()));
        let watch = Watch { process, lines, detector: String::new() };
        let armed = watch.line();
        assert_eq!(armed["event"], "armed", "{armed}");
        let detector = armed["detector"].as_str().unwrap().to_owned();
        Watch { detector, ..watch }
    }

    /// The next line.
    pub(crate) fn line(&self) -> Value {
        let line = self.lines.recv_timeout(SOON).expect("another line of the agent's");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// The next line has to be a match of this process.
    #[track_caller]
    pub(crate) fn expect(&self, pid: u32, matched: &str, source: &str) -> Value {
        let line = self.line();
        assert_eq!(line["event"], "match", "{line}");
        assert_eq!((&line["pid"], &line["matched"], &line["source"]), (&pid.into(), &matched.into(), &source.into()));
        let at = line["at"].as_str().unwrap();
        at.parse::<jiff::Timestamp>().unwrap_or_else(|error| panic!("{at}: {error}"));
        line
    }

    /// Everything that is left, after a signal has ended the agent well.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let rest = self.lines.iter().collect();
        assert_eq!(self.process.0.wait().unwrap().code(), Some(0));
        rest
    }
}

/// A group of its own in a hierarchy of cgroups, gone with the test.
pub(crate) struct Group {
    root: PathBuf,
    pub(crate) path: PathBuf,
}

impl Group {
    /// A group at this path, which begins with a name of this test's own.
    pub(crate) fn new(hierarchy: &Path, name: &str) -> Self {
        let root = hierarchy.join(name.split('/').next().unwrap());
        let path = hierarchy.join(name);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Group { root, path }
    }

    /// A command that first moves itself into this group and then runs the program that is given to it.
    pub(crate) fn enter(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.path.join("cgroup.procs"));
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // From the inside out; a group whose process has just been ended may need a moment, and is then left empty.
        for directory in self.path.ancestors().take_while(|it| it.starts_with(&self.root)) {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Where version 2 is mounted, and the hierarchies of version 1 if there are any.
pub(crate) fn hierarchies() -> (PathBuf, Vec<PathBuf>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let of = |kind: &str| -> Vec<PathBuf> {
        let fields = mounts.lines().map(|it| it.split(' ').collect::<Vec<_>>());
        fields.filter(|it| it[2] == kind).map(|it| it[1].into()).collect()
    };
    let unified = of("cgroup2").into_iter().next().expect("a mounted cgroup2");
    (unified, of("cgroup"))
}
