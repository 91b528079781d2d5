//! Scans processes and returns each matching process once.

use std::collections::HashSet;
use std::io;

use super::cgroup::CgroupNamespace;
use super::matcher::{Matcher, ProcessInfo as _, ProcessMatch};
use super::procfs::{Process, Procfs};
use crate::config::Patterns;

/// Identifies a readiness probe, which runs the same program as the agent.
const PROBE_ARGUMENT: &[u8] = b"--probe";

/// Exited processes are pruned from the reported ones when there are at least this many.
const PRUNE_THRESHOLD: usize = if cfg!(test) { 16 } else { 1024 };

/// Which processes to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// The process that executed a program or was renamed.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only the proc connector names a process"))]
    Process(u32),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanResult {
    /// Matches that were not returned before.
    pub(crate) matches: Vec<ProcessMatch>,
    /// Pids of `--probe` processes that wait to be noticed.
    pub(crate) probes: Vec<u32>,
}

pub(crate) struct ProcessScanner {
    matcher: Matcher,
    procfs: Procfs,
    own_pid: u32,
    own_comm: Option<Vec<u8>>,
    cgroup_namespace: CgroupNamespace,
    /// Matches returned so far, by pid and start time because pids are reused.
    reported: HashSet<(u32, u64)>,
    /// Size of `reported` that triggers the next pruning.
    prune_at: usize,
}

impl ProcessScanner {
    pub(crate) fn new(patterns: Patterns, procfs: Procfs) -> Self {
        let (own_pid, cgroup_namespace) = (procfs.own_pid(), procfs.cgroup_namespace());
        let own_comm = procfs.process(own_pid).comm();
        let (reported, prune_at) = (HashSet::new(), PRUNE_THRESHOLD);
        let matcher = Matcher::new(patterns);
        ProcessScanner { matcher, procfs, own_pid, own_comm, cgroup_namespace, reported, prune_at }
    }

    /// Replaces the patterns; processes that were reported may be reported again.
    pub(crate) fn set_patterns(&mut self, patterns: Patterns) {
        self.matcher = Matcher::new(patterns);
        self.clear_reported();
    }

    pub(crate) fn clear_reported(&mut self) {
        self.reported.clear();
    }

    pub(crate) fn scan(&mut self, scope: Scope) -> io::Result<ScanResult> {
        let mut result = ScanResult::default();
        if self.matcher.is_empty() {
            return Ok(result);
        }
        match scope {
            Scope::Process(pid) => self.scan_process(pid, &mut result),
            Scope::All => {
                self.prune_exited();
                self.procfs.pids()?.into_iter().for_each(|pid| self.scan_process(pid, &mut result));
            }
        }
        Ok(result)
    }

    fn scan_process(&mut self, pid: u32, result: &mut ScanResult) {
        if pid == self.own_pid {
            return;
        }
        let process = self.procfs.process(pid);
        if self.is_probe(&process) {
            result.probes.push(pid);
        } else if let Some(found) = self.find_new(&process) {
            result.matches.push(found);
        }
    }

    fn is_probe(&self, process: &Process) -> bool {
        self.own_comm.is_some()
            && process.comm() == self.own_comm
            && self.may_read_cmdline(process)
            && process.cmdline().is_some_and(|argv| argv.split(|byte| *byte == 0).any(|it| it == PROBE_ARGUMENT))
    }

    /// A pod's process may have the agent's name, and can let a read of its command line block. A probe runs in the agent's
    /// own container.
    fn may_read_cmdline(&self, process: &Process) -> bool {
        let Some(cgroup) = process.cgroup() else { return false };
        !self.cgroup_namespace.is_pod(&cgroup) || self.procfs.process(self.own_pid).cgroup() == Some(cgroup)
    }

    fn find_new(&mut self, process: &Process) -> Option<ProcessMatch> {
        let found = self.matcher.find(process, self.cgroup_namespace)?;
        // `None` also if the process is exiting, so that its cgroup may not have been its own.
        let start_time = process.start_time()?;
        if self.reported.len() >= self.prune_at {
            self.prune_exited();
        }
        self.reported.insert((found.pid, start_time)).then_some(found)
    }

    fn prune_exited(&mut self) {
        self.reported.retain(|(pid, start_time)| self.procfs.process(*pid).start_time() == Some(*start_time));
        // Doubling keeps the cost per match constant while thousands of matching processes run.
        self.prune_at = PRUNE_THRESHOLD.max(2 * self.reported.len());
    }
}

#[cfg(test)]
#[path = "scanner_tests.rs"]
mod tests;
