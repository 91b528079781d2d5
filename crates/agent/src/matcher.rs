//! Whether a process is one that its owner wants the machine back for. Pure: it is told what `/proc` says.
//!
//! What costs least is asked first. Most processes are none of ours by their name and their arguments, and for those the
//! cgroup is never read.

mod cgroup;

use memchr::memmem;

pub(crate) use cgroup::Ground;

/// The kernel keeps this many bytes of a program's name.
const COMM_MAX: usize = 15;

/// How many arguments may hold a program's own name: its own, or an interpreter's, that interpreter's one option, and
/// the script.
const NAMING_ARGUMENTS: usize = 3;

/// What the owner asked to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns {
    /// Names of programs, compared whole.
    pub(crate) commands: Vec<String>,
    /// Parts of a command line.
    pub(crate) argv_substrings: Vec<String>,
}

/// What is known of one process. Each is asked for at most once, and only if it matters; `None` is a process that has
/// gone meanwhile.
pub(crate) trait Subject {
    /// `/proc/<pid>/comm` without the newline that ends it.
    fn comm(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cmdline` as it is. Empty for the kernel's own threads.
    fn cmdline(&self) -> Option<Vec<u8>>;
    /// `/proc/<pid>/cgroup`, of a process that still lived after it was read.
    fn cgroup(&self) -> Option<String>;
}

/// Where a pattern was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The name of the process.
    Comm,
    /// Its command line.
    Cmdline,
}

/// A process that the owner wants the machine back for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// The name of the process, where it is text.
    pub(crate) comm: String,
    /// The pattern that it was found by.
    pub(crate) matched: String,
    /// Where the pattern was found.
    pub(crate) source: Source,
}

impl Patterns {
    /// Nothing to look for: the agent is inert.
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.argv_substrings.is_empty()
    }

    /// Whether this process is one of those, and by which pattern. A process of a pod never is, and neither is one whose
    /// name or cgroup could not be read any more: an unread cgroup could be a pod's.
    pub(crate) fn find(&self, subject: &impl Subject, ground: Ground) -> Option<Match> {
        if self.is_empty() {
            return None;
        }
        let comm = subject.comm()?;
        let (matched, source) = self.named(&comm, subject)?;
        if ground.is_of_a_pod(&subject.cgroup()?) {
            return None;
        }
        Some(Match { comm: String::from_utf8_lossy(&comm).into_owned(), matched: matched.to_owned(), source })
    }

    fn named(&self, comm: &[u8], subject: &impl Subject) -> Option<(&str, Source)> {
        let mut suspects = self.commands.iter().filter(|it| kept_of(it) == comm).peekable();
        // A name that the kernel keeps whole needs no second witness, and no second read.
        if let Some(whole) = suspects.peek().filter(|it| it.len() <= COMM_MAX) {
            return Some((whole, Source::Comm));
        }
        if suspects.peek().is_none() && self.argv_substrings.is_empty() {
            return None;
        }
        let cmdline = subject.cmdline();
        let argv = cmdline.as_deref().map(trimmed).filter(|it| !it.is_empty());
        if let Some(command) = suspects.find(|it| argv.is_none_or(|argv| names(argv, it))) {
            return Some((command, Source::Comm));
        }
        let line = joined(argv?);
        let part = self.argv_substrings.iter().find(|it| memmem::find(&line, it.as_bytes()).is_some())?;
        Some((part, Source::Cmdline))
    }
}

/// What the kernel keeps of a program's name.
fn kept_of(command: &str) -> &[u8] {
    &command.as_bytes()[..command.len().min(COMM_MAX)]
}

/// The arguments without the NULs that end them. A process may have written its own, with any number of them.
fn trimmed(cmdline: &[u8]) -> &[u8] {
    let end = cmdline.iter().rposition(|it| *it != 0).map_or(0, |last| last + 1);
    &cmdline[..end]
}

/// Whether the arguments say that the program has this name, where the kernel has kept a part of it only.
fn names(argv: &[u8], command: &str) -> bool {
    let basename = |argument: &[u8]| -> bool {
        let start = argument.iter().rposition(|it| *it == b'/').map_or(0, |slash| slash + 1);
        &argument[start..] == command.as_bytes()
    };
    argv.split(|it| *it == 0).take(NAMING_ARGUMENTS).any(basename)
}

/// The command line as a person would type it.
fn joined(argv: &[u8]) -> Vec<u8> {
    argv.iter().map(|it| if *it == 0 { b' ' } else { *it }).collect()
}

#[cfg(test)]
mod tests;
