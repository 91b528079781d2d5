//! Programs of the machine's owner.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::{env, fs};

use fivespot_testbed::node::sleeper;

/// Somebody who is not root.
const NOBODY: u32 = 65534;

/// A running program. Dropping it ends it.
pub(crate) struct Program {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Program {
    /// Starts a program of this name outside all pods, as somebody else than the agent.
    pub(crate) fn start_as_nobody(name: &str) -> Self {
        let directory = tempfile::tempdir_in(env::temp_dir()).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join(name);
        fs::copy(sleeper().unwrap(), &program).unwrap();
        let child = Command::new(program).uid(NOBODY).gid(NOBODY).spawn().unwrap();
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

/// What the kernel says of a process, if there is one.
pub(crate) fn status_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// The processes that a process has started.
pub(crate) fn children_of(pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads.map(|it| fs::read_to_string(it.path().join("children")).unwrap()).collect()
}

/// The sockets of a process that wait for somebody to connect, as the kernel lists them.
pub(crate) fn listening(pid: u32) -> Vec<String> {
    const LISTEN: &str = "0A";
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let open: Vec<String> = files
        .filter_map(|it| {
            fs::read_link(it.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(Into::into)
        })
        .collect();
    assert!(!open.is_empty(), "it has the kernel's at least");
    let listed = ["tcp", "tcp6"].map(|it| fs::read_to_string(format!("/proc/{pid}/net/{it}")).unwrap()).concat();
    let is_theirs = |line: &&str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields.get(3) == Some(&LISTEN) && fields.get(9).is_some_and(|inode| open.iter().any(|it| it == inode))
    };
    listed.lines().filter(is_theirs).map(Into::into).collect()
}
