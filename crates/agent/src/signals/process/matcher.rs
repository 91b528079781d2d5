//! Decides whether a process matches the configured patterns. Pure: [`ProcessInfo`] provides what `/proc` shows.
//!
//! Cheap checks come first: most processes match neither by name nor by command line, and their cgroup is never read.

use memchr::memmem;

use super::cgroup::CgroupNamespace;
use crate::config::Patterns;

/// `TASK_COMM_LEN` without the NUL: the kernel truncates process names to this many bytes.
const MAX_COMM: usize = 15;

/// How many leading arguments may name the program: its own, or those of an interpreter, one option and the script.
const NAMING_ARGUMENTS: usize = 3;

/// What is known about a process. Values are read lazily; `None` means that the process has exited.
pub(crate) trait ProcessInfo {
    fn pid(&self) -> u32;
    /// `/proc/<pid>/comm` without the trailing newline.
    fn comm(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cmdline`, NUL-separated. Empty for kernel threads.
    fn cmdline(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cgroup`, if the process was still running after the read.
    fn cgroup(&self) -> Option<String>;
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

impl Patterns {
    /// The first pattern that the process matches. A pod's process never matches, and neither does one that exited before
    /// its name and cgroup were read: an unread cgroup could be a pod's.
    pub(crate) fn find(&self, process: &impl ProcessInfo, namespace: CgroupNamespace) -> Option<ProcessMatch> {
        if self.is_empty() {
            return None;
        }
        let comm = process.comm()?;
        let (pattern, source) = self.find_pattern(&comm, process)?;
        if namespace.is_pod(&process.cgroup()?) {
            return None;
        }
        let comm = String::from_utf8_lossy(&comm).into_owned();
        Some(ProcessMatch { pid: process.pid(), comm, matched: pattern.to_owned(), source })
    }

    fn find_pattern(&self, comm: &[u8], process: &impl ProcessInfo) -> Option<(&str, MatchSource)> {
        let mut candidates = self.commands.iter().filter(|command| truncate_to_comm(command) == comm).peekable();
        // A name that fits into comm needs no confirmation by the command line.
        if let Some(command) = candidates.peek().filter(|command| command.len() <= MAX_COMM) {
            return Some((command, MatchSource::Comm));
        }
        if candidates.peek().is_none() && self.argv_substrings.is_empty() {
            return None;
        }
        let cmdline = process.cmdline();
        let argv = cmdline.as_deref().map(trim_nuls).filter(|argv| !argv.is_empty());
        if let Some(command) = candidates.find(|command| argv.is_none_or(|argv| names_program(argv, command))) {
            return Some((command, MatchSource::Comm));
        }
        let line = join_with_spaces(argv?);
        let substring = self.argv_substrings.iter().find(|it| memmem::find(&line, it.as_bytes()).is_some())?;
        Some((substring, MatchSource::Cmdline))
    }
}

/// The part of a program's name that the kernel keeps.
fn truncate_to_comm(command: &str) -> &[u8] {
    &command.as_bytes()[..command.len().min(MAX_COMM)]
}

/// A process may overwrite its command line and leave any number of trailing NULs.
fn trim_nuls(cmdline: &[u8]) -> &[u8] {
    let end = cmdline.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &cmdline[..end]
}

/// Whether the command line confirms a name that the kernel truncated.
fn names_program(argv: &[u8], command: &str) -> bool {
    let basename_matches = |argument: &[u8]| -> bool {
        let start = argument.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        &argument[start..] == command.as_bytes()
    };
    argv.split(|byte| *byte == 0).take(NAMING_ARGUMENTS).any(basename_matches)
}

fn join_with_spaces(argv: &[u8]) -> Vec<u8> {
    argv.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect()
}

#[cfg(test)]
#[path = "matcher_tests.rs"]
mod tests;
