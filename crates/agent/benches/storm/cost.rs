//! What a process has used, as the kernel counts it.

use std::fs;
use std::time::Duration;

/// Clock ticks in a second: what every Linux tells to programs.
const TICKS: u32 = 100;

#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) processor: Duration,
    /// In MiB.
    pub(crate) memory: f64,
}

impl Cost {
    pub(crate) fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().collect();
        let ticks: u32 = [11, 12].iter().map(|at| fields[*at].parse::<u32>().unwrap()).sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
        let kibibytes: f64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        Cost { processor: Duration::from_secs(1) * ticks / TICKS, memory: kibibytes / 1024.0 }
    }

    /// What was used since then.
    pub(crate) fn since(self, before: Cost) -> Self {
        Cost { processor: self.processor.saturating_sub(before.processor), ..self }
    }
}
