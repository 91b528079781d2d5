//! Reads processes from a mounted procfs. A process may exit between any two reads; that is `None`, never an error.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::cgroup::CgroupNamespace;
use super::matcher::ProcessInfo;

/// Flags of the kernel's `sched.h`.
const PF_EXITING: u64 = 0x4;
const PF_KTHREAD: u64 = 0x0020_0000;

/// Most files are shorter, so one read is enough.
const INITIAL_BUFFER: usize = 512;

/// At most this much of a command line is read. A process can make the kernel show any part of its memory, gigabytes of it. One
/// argument has at most 128 KiB, so the argument that follows a long class path is still read.
pub(super) const MAX_CMDLINE: usize = 256 << 10;

/// Longer than any other file: a line of `cgroup` has at most `PATH_MAX` bytes, and there are a dozen of them.
const MAX_FILE_SIZE: usize = 64 << 10;

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

    /// Whether `hidepid` applies to the agent. Process 1 always exists, and has more capabilities than the agent.
    pub(crate) fn hides_processes(&self) -> bool {
        self.process(1).comm().is_none()
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
        let stat = self.stat()?;
        (stat.flags & PF_EXITING == 0).then_some(stat.start_time)
    }

    fn stat(&self) -> Option<Stat> {
        let stat = self.read_text("stat")?;
        // The name is in parentheses and may contain parentheses itself.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        Some(Stat {
            parent: fields.get(1)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    fn read_text(&self, file: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(file, MAX_FILE_SIZE)?).into_owned())
    }

    /// `fs::read` would first query the file's size, which procfs does not report: two more system calls per exec.
    fn read(&self, file: &str, limit: usize) -> Option<Vec<u8>> {
        let mut file = File::open(self.directory.join(file)).ok()?;
        let (mut bytes, mut filled) = (vec![0; INITIAL_BUFFER], 0);
        loop {
            match file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if filled == limit {
                break;
            }
            if filled == bytes.len() {
                bytes.resize((4 * filled).min(limit), 0);
            }
        }
        bytes.truncate(filled);
        Some(bytes)
    }
}

/// The fields of `/proc/<pid>/stat` that the agent reads.
struct Stat {
    parent: u32,
    flags: u64,
    start_time: u64,
}

impl ProcessInfo for Process {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn comm(&self) -> Option<Vec<u8>> {
        let read = || {
            let mut comm = self.read("comm", MAX_FILE_SIZE)?;
            // The kernel appends a newline, and `echo idea > /proc/self/comm` makes another one part of the name.
            while comm.pop_if(|last| *last == b'\n').is_some() {}
            Some(comm)
        };
        self.comm.get_or_init(read).clone()
    }

    fn cmdline(&self) -> Option<Vec<u8>> {
        self.read("cmdline", MAX_CMDLINE)
    }

    fn cgroup(&self) -> Option<String> {
        self.read_text("cgroup")
    }

    fn parent(&self) -> Option<Self> {
        let pid = self.stat()?.parent;
        // 0 is the kernel, or a process outside of this pid namespace.
        (pid != 0).then(|| Process {
            pid,
            directory: self.directory.with_file_name(pid.to_string()),
            comm: OnceCell::new(),
        })
    }

    fn is_kernel_thread(&self) -> bool {
        self.stat().is_some_and(|stat| stat.flags & PF_KTHREAD != 0)
    }

    fn is_root(&self) -> bool {
        // `Uid:` is followed by the real and the effective uid.
        let status = self.read_text("status").unwrap_or_default();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        uids.and_then(|uids| uids.split_ascii_whitespace().nth(1)) == Some("0")
    }
}
