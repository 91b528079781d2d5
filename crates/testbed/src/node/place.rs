//! Where a node lives on this machine, and who cleans up after it.
//!
//! Containers are no children of ours: a shim stands between, which outlives even containerd. So a caretaker, a small
//! script that is bound to nobody, waits for the end of this process or of the node, and then ends and removes everything
//! that has the node's name. A caretaker that was killed itself is made up for by the next node.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::control_plane::StartError;
use crate::run_dir::RunDir;

/// Short, because sockets are made in it, whose paths may have 107 characters.
const PLACES: &str = "/run/5spot-testbed";
const CARETAKER: &str = include_str!("caretaker.sh");

/// What a kubelet asks of control groups.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "hugetlb", "io"];

/// The directories and control groups of one node. Dropping it removes them, and everything that still runs in them.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    logs: PathBuf,
    data: PathBuf,
    caretaker: Child,
}

impl Place {
    /// Makes them, for a node of this name. What earlier nodes left whose caretaker was killed goes away.
    pub(super) fn create(run: &RunDir, name: &str) -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        make(Path::new(PLACES))?;
        sweep();
        let (number, directory) = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let directory = Path::new(PLACES).join(format!("{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => break (number, directory),
                // Left by a process that had our id before us.
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StartError::io(&directory)(error)),
            }
        };
        let node = run.subdirectory(&format!("node-{name}-{number}")).map_err(StartError::io(run.path()))?;
        let (logs, data) = (node.join("pods"), node.join("data"));
        make(&logs)?;
        make(&data)?;
        // The caretaker is told by a link: it has to know when we cannot tell any more.
        symlink(&data, directory.join("data")).map_err(StartError::io(&directory))?;
        let address = directory.join("address");
        fs::write(&address, directory.join("containerd.sock").display().to_string())
            .map_err(StartError::io(&address))?;
        let caretaker = caretaker(&directory, Stdio::piped()).map_err(StartError::io(&directory))?;
        let place = Self { directory, logs, data, caretaker };
        place.make_groups()?;
        Ok(place)
    }

    /// For sockets and small files. It goes with the node.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// For images and what is unpacked from them. It goes with the node.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// For what the pods print. It stays with the other logs of the run.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// Where containerd listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }

    /// The control group below which all pods are. Two kubelets in one group would end each other's pods.
    pub(super) fn group(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        format!("5spot-testbed-{name}")
    }

    /// A kubelet that is given a group wants to find it, in every hierarchy.
    fn make_groups(&self) -> Result<(), StartError> {
        let mounts = Path::new("/proc/self/mounts");
        let mounts = fs::read_to_string(mounts).map_err(StartError::io(mounts))?;
        for (kind, at) in mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let at = fields.next()?;
            Some((fields.next()?, Path::new(at)))
        }) {
            match kind {
                "cgroup" => make(&at.join(self.group()))?,
                "cgroup2" => {
                    make(&at.join(self.group()))?;
                    hand_down(at, &at.join(self.group()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.caretaker.stdin.take());
        // It fails only if the caretaker has been reaped already.
        let _ = self.caretaker.wait();
    }
}

/// In the second version of control groups a group has the controllers that those above it hand down.
fn hand_down(root: &Path, group: &Path) -> Result<(), StartError> {
    let available = root.join("cgroup.controllers");
    let available = fs::read_to_string(&available).map_err(StartError::io(&available))?;
    for controller in available.split_whitespace().filter(|it| CONTROLLERS.contains(it)) {
        for from in [root, group] {
            let file = from.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).map_err(StartError::io(&file))?;
        }
    }
    Ok(())
}

fn make(directory: &Path) -> Result<(), StartError> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(directory).map_err(StartError::io(directory))
}

fn caretaker(directory: &Path, until: Stdio) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", CARETAKER])
        .env("PLACE", directory)
        .stdin(until)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C that ends us must not end it.
        .process_group(0)
        .spawn()
}

/// Removes what is left of nodes whose process is gone and whose caretaker did not get to it.
fn sweep() {
    for entry in fs::read_dir(PLACES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
            && let Ok(mut caretaker) = caretaker(&entry.path(), Stdio::null())
        {
            let _ = caretaker.wait();
        }
    }
}
