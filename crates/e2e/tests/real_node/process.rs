//! Programs of the machine's owner, and processes in `/proc`.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::{env, fs};

use fivespot_testbed::node::sleeper;

/// Uid and gid without privileges.
const UNPRIVILEGED: u32 = 65534;

/// A running program. Killed when dropped.
pub(crate) struct Program {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Program {
    /// Starts a sleeping program outside of pods, as another user than the agent.
    pub(crate) fn start_unprivileged(name: &str) -> Self {
        Self::start(name, |command| command.uid(UNPRIVILEGED).gid(UNPRIVILEGED))
    }

    /// Starts a sleeping program with these arguments outside of pods, as root.
    pub(crate) fn start_as_root(name: &str, arguments: &[&str]) -> Self {
        Self::start(name, |command| command.args(arguments))
    }

    fn start(name: &str, configure: impl Fn(&mut Command) -> &mut Command) -> Self {
        let directory = tempfile::tempdir_in(env::temp_dir()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join(name);
        fs::copy(sleeper().unwrap(), &program).unwrap();
        let child = configure(&mut Command::new(program)).spawn().unwrap();
        Self { child, _directory: directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `/proc/<pid>/status`; `None` if the process does not exist.
pub(crate) fn status_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// Process IDs of the children.
pub(crate) fn children_of(pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.map(|it| fs::read_to_string(it.path().join("children")).unwrap()).collect()
}

/// The lines of `/proc/net/tcp` and `tcp6` for the listening sockets of a process.
pub(crate) fn listening_sockets(pid: u32) -> Vec<String> {
    const LISTEN: &str = "0A";
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let inodes: Vec<String> = files
        .filter_map(|it| {
            fs::read_link(it.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(Into::into)
        })
        .collect();
    assert!(!inodes.is_empty(), "the agent has at least its netlink socket");
    let listed = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/{pid}/net/{it}")).unwrap()).concat();
    let is_listening = |line: &&str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&LISTEN) && fields.get(9).is_some_and(|inode| inodes.iter().any(|it| it == inode))
    };
    listed.lines().filter(is_listening).map(Into::into).collect()
}
