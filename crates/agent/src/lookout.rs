//! Looks at processes, and tells of each that matches once.

use std::collections::HashSet;
use std::io;

use crate::detect::Hint;
use crate::matcher::{Ground, Match, Patterns};
use crate::proc::Proc;

/// So many matches are kept in mind before those that have gone are forgotten.
const KEPT_IN_MIND: usize = 1024;

/// A process that matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) what: Match,
}

/// What to look for, where, and what has been told already.
pub(crate) struct Lookout {
    patterns: Patterns,
    proc: Proc,
    own_pid: u32,
    ground: Ground,
    /// By id and time of start, since ids come again.
    told: HashSet<(u32, u64)>,
}

impl Lookout {
    pub(crate) fn new(patterns: Patterns, proc: Proc) -> Self {
        let (own_pid, ground) = (proc.own_pid(), proc.ground());
        Lookout { patterns, proc, own_pid, ground, told: HashSet::new() }
    }

    /// What matches and has not been told yet.
    pub(crate) fn look(&mut self, hint: Hint) -> io::Result<Vec<Found>> {
        match hint {
            Hint::One(pid) => Ok(self.examine(pid).into_iter().collect()),
            Hint::All if self.patterns.is_empty() => Ok(Vec::new()),
            Hint::All => {
                self.forget_the_gone();
                Ok(self.proc.pids()?.into_iter().filter_map(|pid| self.examine(pid)).collect())
            }
        }
    }

    fn examine(&mut self, pid: u32) -> Option<Found> {
        if pid == self.own_pid {
            return None;
        }
        let process = self.proc.process(pid);
        let what = self.patterns.find(&process, self.ground)?;
        if self.told.len() >= KEPT_IN_MIND {
            self.forget_the_gone();
        }
        self.told.insert((pid, process.started()?)).then_some(Found { pid, what })
    }

    fn forget_the_gone(&mut self) {
        self.told.retain(|(pid, started)| self.proc.process(*pid).started() == Some(*started));
    }
}

#[cfg(test)]
mod tests;
