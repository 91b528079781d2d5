//! Looks at processes, and tells of each that matches once.

use std::collections::HashSet;
use std::io;

use crate::detect::Hint;
use crate::matcher::{Ground, Match, Patterns, Subject as _};
use crate::probe;
use crate::proc::{Proc, Process};

/// So many matches are kept in mind, at least, before those that have gone are forgotten.
const KEPT_IN_MIND: usize = if cfg!(test) { 16 } else { 1024 };

/// A process that matches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) what: Match,
}

/// What a look has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What matches and has not been told yet.
    pub(crate) matches: Vec<Found>,
    /// Processes that only want to be noticed.
    pub(crate) probes: Vec<u32>,
}

/// What to look for, where, and what has been told already.
pub(crate) struct Lookout {
    patterns: Patterns,
    proc: Proc,
    own_pid: u32,
    /// A probe is the same program.
    own_comm: Option<Vec<u8>>,
    ground: Ground,
    /// By id and time of start, since ids come again.
    told: HashSet<(u32, u64)>,
    /// How many of them are enough to look for those that have gone.
    enough: usize,
}

impl Lookout {
    pub(crate) fn new(patterns: Patterns, proc: Proc) -> Self {
        let (own_pid, ground) = (proc.own_pid(), proc.ground());
        let own_comm = proc.process(own_pid).comm();
        Lookout { patterns, proc, own_pid, own_comm, ground, told: HashSet::new(), enough: KEPT_IN_MIND }
    }

    /// Looks for something else from now on, as if nothing had been told yet.
    pub(crate) fn look_for(&mut self, patterns: Patterns) {
        self.patterns = patterns;
        self.forget();
    }

    /// Whatever has been told may be told again.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
    }

    pub(crate) fn look(&mut self, hint: Hint) -> io::Result<Seen> {
        let mut seen = Seen::default();
        if self.patterns.is_empty() {
            return Ok(seen);
        }
        match hint {
            Hint::One(pid) => self.examine(pid, &mut seen),
            Hint::All => {
                self.forget_the_gone();
                self.proc.pids()?.into_iter().for_each(|pid| self.examine(pid, &mut seen));
            }
        }
        Ok(seen)
    }

    fn examine(&mut self, pid: u32, seen: &mut Seen) {
        if pid == self.own_pid {
            return;
        }
        let process = self.proc.process(pid);
        if self.is_probe(&process) {
            seen.probes.push(pid);
        } else if let Some(what) = self.news_of(pid, &process) {
            seen.matches.push(Found { pid, what });
        }
    }

    fn is_probe(&self, process: &Process) -> bool {
        self.own_comm.is_some()
            && process.comm() == self.own_comm
            && process.cmdline().is_some_and(|it| it.split(|it| *it == 0).any(|it| it == probe::ARGUMENT))
    }

    fn news_of(&mut self, pid: u32, process: &Process) -> Option<Match> {
        let what = self.patterns.find(process, self.ground)?;
        if self.told.len() >= self.enough {
            self.forget_the_gone();
        }
        self.told.insert((pid, process.started()?)).then_some(what)
    }

    fn forget_the_gone(&mut self) {
        self.told.retain(|(pid, started)| self.proc.process(*pid).started() == Some(*started));
        // Not again for each one more, where thousands of them live.
        self.enough = KEPT_IN_MIND.max(2 * self.told.len());
    }
}

#[cfg(test)]
mod tests;
