//! `spec.gracefulShutdownTimeout` and `spec.nodeDrainTimeout`.

use fivespot_schedule::{DurationError, parse_duration};
use jiff::SignedDuration;

use super::ErrorList;
use crate::rules::DurationRules;

pub(super) fn check(rules: &DurationRules, text: &str, errors: &mut ErrorList) -> Option<SignedDuration> {
    match parse_duration(text) {
        Ok(duration) => Some(duration),
        Err(error) => {
            let rule = if matches!(error, DurationError::TooLong) { rules.bound } else { rules.format };
            errors.add(rules.field, rule, Some(format!("{text:?}")));
            None
        }
    }
}
