//! Counts passed, failed and skipped checks and tests.

use std::fmt;

use anyhow::Result;

/// The results so far. Its `Display` ends with the line `<n> passed, <n> failed`.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Summary {
    /// Announces, runs and counts one check, and returns whether it passed. A failure does not stop the run.
    pub(super) fn check(&mut self, name: &str, description: &str, check: impl FnOnce() -> Result<()>) -> bool {
        println!("==> {name}: {description}");
        let result = check();
        match &result {
            Ok(()) => self.passed += 1,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                self.fail(name);
            }
        }
        result.is_ok()
    }

    pub(super) fn fail(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    /// Counts tests that cannot run on this machine.
    pub(super) fn skip(&mut self, name: &str, reason: &str) {
        println!("==> {name}: skipped: {reason}");
        self.skipped += 1;
    }

    /// Parses a line of `cargo test`: the result of a test binary, or a failed test.
    pub(super) fn parse_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.push(name.to_owned());
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let count = |label: &str| {
            let mut parts = counts.split(['.', ';']);
            parts.find_map(|part| part.trim().strip_suffix(label)?.trim().parse::<usize>().ok())
        };
        self.passed += count("passed").unwrap_or_default();
        self.skipped += count("ignored").unwrap_or_default();
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    pub(super) fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Counts skipped tests as a failure, for CI.
    pub(super) fn fail_on_skips(&mut self) {
        if self.skipped > 0 {
            self.fail(&format!("{} skipped tests", self.skipped));
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.failed {
            writeln!(f, "failed: {name}")?;
        }
        if self.skipped > 0 {
            writeln!(f, "skipped: {}", self.skipped)?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Summary {
        let mut summary = Summary::default();
        for line in lines {
            summary.parse_line(line);
        }
        summary
    }

    #[test]
    fn last_line_counts_all_binaries() {
        let summary = parse(&[
            "running 3 tests",
            "test a ... ok",
            "test b::c ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ]);
        assert_eq!(summary.to_string(), "failed: b::c\n42 passed, 1 failed");
    }

    #[test]
    fn skips_are_printed_and_fail_in_ci() {
        let mut summary = parse(&["test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out"]);
        assert_eq!(summary.to_string(), "skipped: 2\n1 passed, 0 failed");
        summary.fail_on_skips();
        assert_eq!(summary.failed(), 1);
        let mut summary = parse(&[]);
        summary.skip("tests on a real node", "not root");
        assert_eq!(summary.to_string(), "skipped: 1\n0 passed, 0 failed");
    }

    #[test]
    fn failed_check_does_not_stop_the_run() {
        let mut summary = Summary::default();
        summary.check("first", "fails", || anyhow::bail!("no"));
        summary.check("second", "passes", || Ok(()));
        assert_eq!(summary.to_string(), "failed: first\n1 passed, 1 failed");
    }
}
