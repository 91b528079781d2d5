//! What `/proc` says of processes. Each may end between any two reads; that is never an error, only `None`.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::matcher::{Ground, Subject};

/// A task that has begun to exit (`PF_EXITING` of the kernel's `sched.h`).
const EXITING: u64 = 0x4;

/// Most of what is read is shorter.
const AT_ONCE: usize = 512;

/// What is read of a file at most: a command line is no longer where the stack is as large as usual, and no other file is
/// nearly as long. A process can have the kernel show any part of its memory as its command line, gigabytes of it.
const AT_MOST: usize = 2 << 20;

/// A mounted procfs, the host's where the agent runs in a container.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    root: PathBuf,
}

impl Proc {
    pub(crate) fn at(root: &Path) -> Self {
        Proc { root: root.to_owned() }
    }

    /// The ids of all processes.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.root)?;
        Ok(entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// The agent's own id as this procfs has it, which may be the one of another pid namespace than the agent's.
    pub(crate) fn own_pid(&self) -> u32 {
        let own = fs::read_link(self.root.join("self")).ok();
        own.and_then(|it| it.to_str()?.parse().ok()).unwrap_or_else(std::process::id)
    }

    /// Where process 1 is, seen from the cgroup namespace of the agent.
    pub(crate) fn ground(&self) -> Ground {
        self.process(1).text("cgroup").map(|it| Ground::of_process_one(&it)).unwrap_or_default()
    }

    pub(crate) fn process(&self, pid: u32) -> Process {
        Process { directory: self.root.join(pid.to_string()), comm: OnceCell::new() }
    }
}

/// One process, or what was one.
#[derive(Debug)]
pub(crate) struct Process {
    directory: PathBuf,
    /// It is asked for by more than one, and read once.
    comm: OnceCell<Option<Vec<u8>>>,
}

impl Process {
    /// When it was started, in clock ticks since the machine was: with its id, this tells it from any later process.
    /// `None` for one that has gone or has begun to.
    pub(crate) fn started(&self) -> Option<u64> {
        let stat = self.text("stat")?;
        // The name is in parentheses and may hold any of them itself.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let (flags, started) = (fields.get(6)?.parse::<u64>().ok()?, fields.get(19)?.parse().ok()?);
        (flags & EXITING == 0).then_some(started)
    }

    fn text(&self, file: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(file)?).into_owned())
    }

    /// The library's own way would first ask for a size that no such file has: two calls more for each started program.
    fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        let mut file = File::open(self.directory.join(file)).ok()?;
        let (mut bytes, mut filled) = (vec![0; AT_ONCE], 0);
        loop {
            match file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if filled == AT_MOST {
                break;
            }
            if filled == bytes.len() {
                bytes.resize((2 * filled).min(AT_MOST), 0);
            }
        }
        bytes.truncate(filled);
        Some(bytes)
    }
}

impl Subject for Process {
    fn comm(&self) -> Option<Vec<u8>> {
        let read = || {
            let mut comm = self.bytes("comm")?;
            // The file ends with one, and `echo idea > /proc/self/comm` makes another a part of the name.
            while comm.pop_if(|last| *last == b'\n').is_some() {}
            Some(comm)
        };
        self.comm.get_or_init(read).clone()
    }

    fn cmdline(&self) -> Option<Vec<u8>> {
        self.bytes("cmdline")
    }

    /// The kernel moves a process that exits to the root of every hierarchy of version 1, where one of a pod looks like
    /// the host's. So the file counts only if the process had not begun to exit once it was read.
    fn cgroup(&self) -> Option<String> {
        let cgroup = self.text("cgroup")?;
        self.started().map(|_| cgroup)
    }
}
