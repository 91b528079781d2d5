//! Directories and cgroups of a node on this machine, and their cleanup.
//!
//! Containers are not children of this process: each has a shim, which outlives even containerd. So a cleanup script
//! without a parent-death signal waits until this process exits or the node is dropped, then kills all processes of the
//! node and removes its files. If the script is killed too, the next node cleans up.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::control_plane::StartError;
use crate::run_dir::RunDir;

/// A short path, because it contains sockets, whose paths are limited to 107 characters.
const ROOT: &str = "/run/5spot-testbed";
const CLEANUP: &str = include_str!("cleanup.sh");

/// The cgroup controllers that a kubelet requires.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "hugetlb", "io"];

/// The directories and cgroups of one node. Dropping them kills all processes in the cgroups and removes everything but
/// the logs.
#[derive(Debug)]
pub(super) struct NodeDirs {
    directory: PathBuf,
    logs: PathBuf,
    data: PathBuf,
    cleanup: Child,
}

impl NodeDirs {
    /// Creates the directories and cgroups, and cleans up after nodes whose cleanup script was killed.
    pub(super) fn create(run: &RunDir, name: &str) -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        create_dir(Path::new(ROOT))?;
        clean_up_abandoned();
        let (number, directory) = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let directory = Path::new(ROOT).join(format!("{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => break (number, directory),
                // Left by an earlier process with the same process ID.
                Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StartError::io(&directory)(error)),
            }
        };
        let node = run.subdirectory(&format!("node-{name}-{number}")).map_err(StartError::io(run.path()))?;
        let (logs, data) = (node.join("pods"), node.join("data"));
        create_dir(&logs)?;
        create_dir(&data)?;
        // The cleanup script follows this link, also when the next node runs it.
        symlink(&data, directory.join("data")).map_err(StartError::io(&directory))?;
        let address = directory.join("address");
        fs::write(&address, directory.join("containerd.sock").display().to_string())
            .map_err(StartError::io(&address))?;
        let cleanup = start_cleanup(&directory, Stdio::piped()).map_err(StartError::io(&directory))?;
        let dirs = Self { directory, logs, data, cleanup };
        dirs.create_cgroups()?;
        Ok(dirs)
    }

    /// For sockets and small files. Removed with the node.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// For images and unpacked layers. Removed with the node.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// For the logs of pods. Kept with the other logs of the run.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The socket of containerd.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }

    /// The parent cgroup of all pods. Two kubelets with the same one would kill each other's pods.
    pub(super) fn cgroup(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        format!("5spot-testbed-{name}")
    }

    /// Creates the parent cgroup in every hierarchy: the kubelet requires that it exists.
    fn create_cgroups(&self) -> Result<(), StartError> {
        let mounts = Path::new("/proc/self/mounts");
        let mounts = fs::read_to_string(mounts).map_err(StartError::io(mounts))?;
        for (kind, at) in mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let at = fields.next()?;
            Some((fields.next()?, Path::new(at)))
        }) {
            match kind {
                "cgroup" => create_dir(&at.join(self.cgroup()))?,
                "cgroup2" => {
                    create_dir(&at.join(self.cgroup()))?;
                    enable_controllers(at, &at.join(self.cgroup()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for NodeDirs {
    fn drop(&mut self) {
        drop(self.cleanup.stdin.take());
        // Fails only if the child has already been reaped.
        let _ = self.cleanup.wait();
    }
}

/// In cgroup v2 a group has only the controllers that its ancestors enable for their children.
fn enable_controllers(root: &Path, cgroup: &Path) -> Result<(), StartError> {
    let available = root.join("cgroup.controllers");
    let available = fs::read_to_string(&available).map_err(StartError::io(&available))?;
    for controller in available.split_whitespace().filter(|name| CONTROLLERS.contains(name)) {
        for parent in [root, cgroup] {
            let file = parent.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).map_err(StartError::io(&file))?;
        }
    }
    Ok(())
}

fn create_dir(directory: &Path) -> Result<(), StartError> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(directory).map_err(StartError::io(directory))
}

fn start_cleanup(directory: &Path, stdin: Stdio) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", CLEANUP])
        .env("NODE_DIR", directory)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C must not end the cleanup.
        .process_group(0)
        .spawn()
}

/// Cleans up after nodes whose process has exited and whose cleanup script did not finish.
fn clean_up_abandoned() {
    for entry in fs::read_dir(ROOT).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
            && let Ok(mut cleanup) = start_cleanup(&entry.path(), Stdio::null())
        {
            let _ = cleanup.wait();
        }
    }
}
