//! Decides whether a process matches the configured patterns. Pure: [`ProcessInfo`] provides what `/proc` shows.
//!
//! Reads are ordered so that no pod can delay the detection of the owner's program. The name and the cgroup are in the kernel's
//! memory. The command line is in that of the process, which can make it long or let a read block, so that of a pod's process
//! is never read.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::cgroup::CgroupNamespace;
use super::container_stack;
use crate::config::Patterns;

/// `TASK_COMM_LEN` without the NUL: the kernel truncates process names to this many bytes.
const MAX_COMM: usize = 15;

/// How many leading arguments may name the program: its own, or those of an interpreter, one option and the script.
const NAMING_ARGUMENTS: usize = 3;

/// Deeper than a mount helper below the kubelet.
pub(super) const MAX_ANCESTORS: usize = 16;

/// What is known about a process. Values are read lazily; `None` means that the process has exited.
pub(crate) trait ProcessInfo {
    fn pid(&self) -> u32;
    /// `/proc/<pid>/comm` without the trailing newline.
    fn comm(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cmdline`, NUL-separated, up to a limit. Empty for kernel threads.
    fn cmdline(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cgroup`.
    fn cgroup(&self) -> Option<String>;
    fn parent(&self) -> Option<Self>
    where
        Self: Sized;
    fn is_kernel_thread(&self) -> bool;
    /// Whether its effective uid is 0.
    fn is_root(&self) -> bool;

    /// Bounded: a process can have thousands of ancestors.
    fn ancestors(&self) -> impl Iterator<Item = Self>
    where
        Self: Sized,
    {
        std::iter::successors(self.parent(), ProcessInfo::parent).take(MAX_ANCESTORS)
    }

    /// Whether the kernel started the program, directly or not: a handler of core dumps, `modprobe`. No program of an owner has
    /// a kernel thread as ancestor.
    fn is_started_by_kernel(&self) -> bool
    where
        Self: Sized,
    {
        self.ancestors().any(|ancestor| ancestor.is_kernel_thread())
    }
}

/// Where a pattern matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MatchSource {
    Comm,
    Cmdline,
}

/// A process that matches a pattern and is not part of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMatch {
    pub(crate) pid: u32,
    /// The process name; bytes that are not UTF-8 are replaced.
    pub(crate) comm: String,
    /// The pattern.
    pub(crate) matched: String,
    pub(crate) source: MatchSource,
}

/// The patterns, prepared for a search.
pub(crate) struct Matcher {
    patterns: Patterns,
    /// Finds all substrings in one pass, however many there are. `None` without substrings.
    substrings: Option<AhoCorasick>,
}

impl Matcher {
    pub(crate) fn new(patterns: Patterns) -> Self {
        let build = || {
            AhoCorasick::builder()
                // A DFA is faster, but takes up to 100 MB for patterns of the maximum length.
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .match_kind(MatchKind::LeftmostFirst)
                .build(&patterns.argv_substrings)
                .expect("100 patterns of 256 characters have far fewer than 2^31 states")
        };
        let substrings = (!patterns.argv_substrings.is_empty()).then(build);
        Matcher { patterns, substrings }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The pattern that the process matches. A pod's process never matches, one of the container stack only by name, and one
    /// that the kernel started never: the kernel passes text of a pod to it, such as the host name of a pod that crashed, and
    /// its handler may run any program. The caller has to check afterwards that the process is not exiting: the kernel moves an exiting process to the root of
    /// every v1 hierarchy, where a pod's process looks like one of the host.
    pub(crate) fn find(&self, process: &impl ProcessInfo, namespace: CgroupNamespace) -> Option<ProcessMatch> {
        let comm = process.comm()?;
        let (pattern, source) = match self.find_command(&comm) {
            Some(command) => (command, MatchSource::Comm),
            None => self.find_in_cmdline(&comm, process, namespace)?,
        };
        // Read after the name and the command line: a container runtime moves a process to the pod's cgroup first, and then
        // executes the pod's program in it.
        let cgroup = process.cgroup()?;
        let is_of_container_stack = || match source {
            MatchSource::Comm => false,
            MatchSource::Cmdline => container_stack::contains(process, &cgroup),
        };
        if namespace.is_pod(&cgroup) || process.is_started_by_kernel() || is_of_container_stack() {
            return None;
        }
        let comm = String::from_utf8_lossy(&comm).into_owned();
        Some(ProcessMatch { pid: process.pid(), comm, matched: pattern.to_owned(), source })
    }

    /// A name that fits into comm needs no confirmation by the command line.
    fn find_command(&self, comm: &[u8]) -> Option<&str> {
        self.patterns.commands.iter().map(String::as_str).find(|command| command.as_bytes() == comm)
    }

    fn find_in_cmdline(
        &self,
        comm: &[u8],
        process: &impl ProcessInfo,
        namespace: CgroupNamespace,
    ) -> Option<(&str, MatchSource)> {
        let is_truncated = |command: &&String| command.len() > MAX_COMM && truncate_to_comm(command) == comm;
        let mut truncated = self.patterns.commands.iter().filter(is_truncated).peekable();
        if (truncated.peek().is_none() && self.substrings.is_none()) || namespace.is_pod(&process.cgroup()?) {
            return None;
        }
        let mut cmdline = process.cmdline().unwrap_or_default();
        trim_nuls(&mut cmdline);
        if let Some(command) = truncated.find(|command| cmdline.is_empty() || names_program(&cmdline, command)) {
            return Some((command, MatchSource::Comm));
        }
        cmdline.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        let found = self.substrings.as_ref()?.find(&cmdline)?;
        Some((&self.patterns.argv_substrings[found.pattern()], MatchSource::Cmdline))
    }
}

/// The part of a program's name that the kernel keeps.
fn truncate_to_comm(command: &str) -> &[u8] {
    &command.as_bytes()[..command.len().min(MAX_COMM)]
}

/// A process may overwrite its command line and leave any number of trailing NULs.
fn trim_nuls(cmdline: &mut Vec<u8>) {
    let end = cmdline.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    cmdline.truncate(end);
}

/// Whether the command line confirms a name that the kernel truncated.
fn names_program(argv: &[u8], command: &str) -> bool {
    let basename_matches = |argument: &[u8]| -> bool {
        let start = argument.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        &argument[start..] == command.as_bytes()
    };
    argv.split(|byte| *byte == 0).take(NAMING_ARGUMENTS).any(basename_matches)
}

#[cfg(test)]
#[path = "matcher_tests.rs"]
mod tests;
