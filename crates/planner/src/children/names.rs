//! Names of the children.

use sha2::{Digest as _, Sha256};

const MAX_NAME_LENGTH: usize = 253;
const MAX_LABEL_VALUE_LENGTH: usize = 63;

/// The names of the children of one ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildNames {
    /// `<name>-machine`.
    pub machine: String,
    /// `<name>-bootstrap`.
    pub bootstrap: String,
    /// `<name>-infra`.
    pub infrastructure: String,
}

impl ChildNames {
    pub fn of(name: &str) -> Self {
        let child = |suffix: &str| format!("{}{suffix}", shortened(name, MAX_NAME_LENGTH - suffix.len()));
        ChildNames { machine: child("-machine"), bootstrap: child("-bootstrap"), infrastructure: child("-infra") }
    }
}

/// Value of the label that names the ScheduledMachine of a child.
pub fn label_value(name: &str) -> String {
    shortened(name, MAX_LABEL_VALUE_LENGTH)
}

/// Shortens a long name and appends a hash of the whole, so that two long names stay distinct.
fn shortened(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_owned();
    }
    let hash = short_hash(name);
    // Object names are ASCII. The kept part must end alphanumerically.
    let kept = name.get(..max - hash.len() - 1).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{kept}-{hash}")
}

/// Ten hexadecimal digits.
pub(super) fn short_hash(text: &str) -> String {
    Sha256::digest(text)[..5].iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex).collect()
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_names_are_unchanged() {
        let names = ChildNames::of("desk-01");
        assert_eq!(names.machine, "desk-01-machine");
        assert_eq!(names.bootstrap, "desk-01-bootstrap");
        assert_eq!(names.infrastructure, "desk-01-infra");
        assert_eq!(label_value("desk-01"), "desk-01");
    }

    #[test]
    fn long_names_with_common_prefix_stay_distinct() {
        let (a, b) = ("x".repeat(250) + "aaa", "x".repeat(250) + "bbb");
        assert_ne!(ChildNames::of(&a).machine, ChildNames::of(&b).machine);
        assert_ne!(label_value(&a), label_value(&b));
    }

    proptest! {
        #[test]
        fn names_are_valid_for_the_api_server(name in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?") {
            let is_name = |it: &str, max: usize| {
                it.len() <= max
                    && it.starts_with(|c: char| c.is_ascii_alphanumeric())
                    && it.ends_with(|c: char| c.is_ascii_alphanumeric())
                    && it.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
            };
            let ChildNames { machine, bootstrap, infrastructure } = ChildNames::of(&name);
            for child in [machine, bootstrap, infrastructure] {
                prop_assert!(is_name(&child, 253), "{child}");
            }
            prop_assert!(is_name(&label_value(&name), 63));
        }
    }
}
