//! Reads processes from a mounted procfs. A process may exit between any two reads; that is `None`, never an error.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::cgroup::CgroupNamespace;
use super::matcher::ProcessInfo;

/// `PF_EXITING` of the kernel's `sched.h`.
const PF_EXITING: u64 = 0x4;

/// Most files are shorter, so one read is enough.
const INITIAL_BUFFER: usize = 512;

/// At most this much of a file is read. A process can make the kernel show any part of its memory, gigabytes of it, as its
/// command line; a regular one is shorter with the usual stack limit.
const MAX_FILE_SIZE: usize = 2 << 20;

/// A mounted procfs: the host's, also where the agent runs in a container.
#[derive(Clone, Debug)]
pub(crate) struct Procfs {
    root: PathBuf,
}

impl Procfs {
    pub(crate) fn at(root: &Path) -> Self {
        Procfs { root: root.to_owned() }
    }

    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.root)?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// The agent's own pid in the pid namespace of this procfs, which may differ from the agent's namespace.
    pub(crate) fn own_pid(&self) -> u32 {
        let own = fs::read_link(self.root.join("self")).ok();
        own.and_then(|link| link.to_str()?.parse().ok()).unwrap_or_else(std::process::id)
    }

    pub(crate) fn cgroup_namespace(&self) -> CgroupNamespace {
        let init = self.process(1).read_text("cgroup");
        init.map(|cgroup| CgroupNamespace::from_init_cgroup(&cgroup)).unwrap_or_default()
    }

    pub(crate) fn process(&self, pid: u32) -> Process {
        Process { pid, directory: self.root.join(pid.to_string()), comm: OnceCell::new() }
    }
}

/// A process, which may have exited.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    directory: PathBuf,
    /// Read once: the probe check and the matcher both need it.
    comm: OnceCell<Option<Vec<u8>>>,
}

impl Process {
    /// The start time in clock ticks since boot. Pids are reused; pid and start time together identify a process.
    /// `None` if the process has exited or is exiting.
    pub(crate) fn start_time(&self) -> Option<u64> {
        let stat = self.read_text("stat")?;
        // The name is in parentheses and may contain parentheses itself.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let (flags, start_time) = (fields.get(6)?.parse::<u64>().ok()?, fields.get(19)?.parse().ok()?);
        (flags & PF_EXITING == 0).then_some(start_time)
    }

    fn read_text(&self, file: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(file)?).into_owned())
    }

    /// `fs::read` would first query the file's size, which procfs does not report: two more system calls per exec.
    fn read(&self, file: &str) -> Option<Vec<u8>> {
        let mut file = File::open(self.directory.join(file)).ok()?;
        let (mut bytes, mut filled) = (vec![0; INITIAL_BUFFER], 0);
        loop {
            match file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if filled == MAX_FILE_SIZE {
                break;
            }
            if filled == bytes.len() {
                bytes.resize((2 * filled).min(MAX_FILE_SIZE), 0);
            }
        }
        bytes.truncate(filled);
        Some(bytes)
    }
}

impl ProcessInfo for Process {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn comm(&self) -> Option<Vec<u8>> {
        let read = || {
            let mut comm = self.read("comm")?;
            // The kernel appends a newline, and `echo idea > /proc/self/comm` makes another one part of the name.
            while comm.pop_if(|last| *last == b'\n').is_some() {}
            Some(comm)
        };
        self.comm.get_or_init(read).clone()
    }

    fn cmdline(&self) -> Option<Vec<u8>> {
        self.read("cmdline")
    }

    /// The kernel moves an exiting process to the root of every v1 hierarchy, where a pod's process looks like one of the
    /// host. So the cgroup counts only if the process was not exiting after the read.
    fn cgroup(&self) -> Option<String> {
        let cgroup = self.read_text("cgroup")?;
        self.start_time().map(|_| cgroup)
    }
}
