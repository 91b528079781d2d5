//! The two timeouts.

use fivespot_schedule::{DurationError, parse_duration};
use jiff::SignedDuration;

use super::{Findings, rules::DurationRules};

pub(super) fn check(rules: &DurationRules, text: &str, findings: &mut Findings) -> Option<SignedDuration> {
    match parse_duration(text) {
        Ok(duration) => Some(duration),
        Err(error) => {
            let rule = if matches!(error, DurationError::TooLong) { rules.bound } else { rules.form };
            findings.add(rules.field, rule, Some(format!("{text:?}")));
            None
        }
    }
}
