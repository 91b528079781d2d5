//! Counts what passed and what failed.

use std::fmt;

use anyhow::Result;

/// Passed, failed and skipped so far. The last line of a run is its `Display`.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Tally {
    /// Runs one check, counts it, and says whether it passed. Others can go on, so that one run tells everything.
    pub(super) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> bool {
        println!("==> {name}");
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

    /// Something that cannot be tested here, and why.
    pub(super) fn skip(&mut self, name: &str, reason: &str) {
        println!("==> {name}: not here: {reason}");
        self.skipped += 1;
    }

    /// Reads a line of `cargo test`: the closing one of a test binary, or one that names a failure.
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("test ").and_then(|it| it.strip_suffix(" ... FAILED")) {
            self.failed.push(name.to_owned());
        }
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let count =
            |of: &str| counts.split(['.', ';']).find_map(|it| it.trim().strip_suffix(of)?.trim().parse::<usize>().ok());
        self.passed += count("passed").unwrap_or_default();
        self.skipped += count("ignored").unwrap_or_default();
    }

    pub(super) fn passes(&self) -> usize {
        self.passed
    }

    pub(super) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// In CI a test that did not run is no better than one that failed.
    pub(super) fn refuse_skips(&mut self) {
        if self.skipped > 0 {
            self.fail(&format!("{} skipped tests", self.skipped));
        }
    }
}

impl fmt::Display for Tally {
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

    fn read(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.read(line);
        }
        tally
    }

    #[test]
    fn the_last_line_counts_every_binary() {
        let tally = read(&[
            "running 3 tests",
            "test a ... ok",
            "test b::c ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ]);
        assert_eq!(tally.to_string(), "failed: b::c\n42 passed, 1 failed");
    }

    #[test]
    fn a_skip_is_told_and_fails_in_ci() {
        let mut tally = read(&["test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out"]);
        assert_eq!(tally.to_string(), "skipped: 2\n1 passed, 0 failed");
        tally.refuse_skips();
        assert_eq!(tally.failures(), 1);
        let mut tally = read(&[]);
        tally.skip("what needs a moon", "there is none");
        assert_eq!(tally.to_string(), "skipped: 1\n0 passed, 0 failed");
    }

    #[test]
    fn a_check_that_fails_does_not_stop_the_others() {
        let mut tally = Tally::default();
        tally.check("first", || anyhow::bail!("no"));
        tally.check("second", || Ok(()));
        assert_eq!(tally.to_string(), "failed: first\n1 passed, 1 failed");
    }
}
