//! Resource usage of a process, as the kernel accounts it.

use std::fs;
use std::time::Duration;

/// `USER_HZ`, which is 100 on every Linux.
const TICKS_PER_SECOND: u32 = 100;

#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) memory_mib: f64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().collect();
        let ticks: u32 = [11, 12].iter().map(|field| fields[*field].parse::<u32>().unwrap()).sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kibibytes: f64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        Usage { cpu: Duration::from_secs(1) * ticks / TICKS_PER_SECOND, memory_mib: kibibytes / 1024.0 }
    }

    /// CPU time since `before`; memory is the current one.
    pub(crate) fn since(self, before: Usage) -> Self {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), ..self }
    }
}
