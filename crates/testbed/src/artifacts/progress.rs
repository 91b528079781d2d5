//! What a newcomer sees during the longest wait they will have.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// One step of making the programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process is building; this one waits for it.
    Waiting,
    /// Go fetches what the module needs and counts its packages.
    Preparing {
        /// The module under `crates/testbed/go`.
        module: &'static str,
    },
    /// Packages are being compiled. Those in Go's cache are not compiled again, so `done` may end below `total`.
    Building {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        /// Packages compiled.
        done: usize,
        /// Packages in all.
        total: usize,
    },
    /// The module's programs are in place.
    Built {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        /// How long it took.
        took: Duration,
    },
}

/// Shows [`Progress`] on standard error: one updating line on a terminal, else a line now and then.
#[derive(Debug, Default)]
pub struct ProgressPrinter {
    last_line: Option<Instant>,
    announced: Option<&'static str>,
}

/// How often a log gets a line during a build.
const LINE_EVERY: Duration = Duration::from_secs(15);

impl ProgressPrinter {
    /// A printer that has shown nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows one step. Failing to print is no reason to fail a build.
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
                first || self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY)
            }
        }
    }
}

fn describe(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "testbed: another process is building the programs, waiting for it".to_owned(),
        Progress::Preparing { module } => format!("testbed: {module}: fetching the Go modules (once)"),
        Progress::Building { module, done, total } => {
            format!("testbed: {module}: {done} of at most {total} packages compiled (once, some minutes)")
        }
        Progress::Built { module, took } => format!("testbed: {module}: built in {} s", took.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_the_first_package_and_then_a_line_now_and_then() {
        let mut printer = ProgressPrinter::new();
        let building = |done| Progress::Building { module: "kube", done, total: 9 };
        assert!(printer.is_due(&building(0)));
        printer.last_line = Some(Instant::now());
        assert!(!printer.is_due(&building(1)));
        assert!(printer.is_due(&Progress::Built { module: "kube", took: Duration::ZERO }));
        assert!(printer.is_due(&Progress::Building { module: "capi", done: 0, total: 9 }));
    }
}
