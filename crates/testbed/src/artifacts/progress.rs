//! Progress of the Go builds, which take minutes on the first run.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// One step of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process holds the build lock.
    Waiting,
    /// Go downloads modules and lists packages.
    Preparing {
        /// The module under `crates/testbed/go`.
        module: &'static str,
    },
    /// Go compiles packages. Those in Go's build cache are not compiled again, so `done` may end below `total`.
    Building {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        done: usize,
        total: usize,
    },
    /// The module's programs are built.
    Built {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        took: Duration,
    },
}

/// Prints [`Progress`] to standard error: one updating line on a terminal, a line every 15 s otherwise.
#[derive(Debug, Default)]
pub struct ProgressPrinter {
    last_line: Option<Instant>,
    announced: Option<&'static str>,
}

const LINE_INTERVAL: Duration = Duration::from_secs(15);

impl ProgressPrinter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Prints one step. Ignores errors: a closed standard error must not fail the build.
    pub fn show(&mut self, progress: &Progress) {
        let mut out = io::stderr();
        let line = describe(progress);
        let _ = if out.is_terminal() {
            let end = if matches!(progress, Progress::Built { .. }) { "\n" } else { "" };
            write!(out, "\r\x1b[2K{line}{end}").and_then(|()| out.flush())
        } else if self.is_due(progress) {
            self.last_line = Some(Instant::now());
            writeln!(out, "{line}")
        } else {
            Ok(())
        };
    }

    fn is_due(&mut self, progress: &Progress) -> bool {
        match progress {
            Progress::Waiting | Progress::Preparing { .. } | Progress::Built { .. } => true,
            Progress::Building { module, .. } => {
                let first = self.announced.replace(module) != Some(module);
                first || self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL)
            }
        }
    }
}

fn describe(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "testbed: waiting for another process that is building".to_owned(),
        Progress::Preparing { module } => format!("testbed: {module}: downloading Go modules (first run only)"),
        Progress::Building { module, done, total } => {
            format!("testbed: {module}: compiled {done} of at most {total} packages (first run only, takes minutes)")
        }
        Progress::Built { module, took } => format!("testbed: {module}: built in {} s", took.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_gets_first_package_and_periodic_lines() {
        let mut printer = ProgressPrinter::new();
        let building = |done| Progress::Building { module: "kube", done, total: 9 };
        assert!(printer.is_due(&building(0)));
        printer.last_line = Some(Instant::now());
        assert!(!printer.is_due(&building(1)));
        assert!(printer.is_due(&Progress::Built { module: "kube", took: Duration::ZERO }));
        assert!(printer.is_due(&Progress::Building { module: "capi", done: 0, total: 9 }));
    }
}
