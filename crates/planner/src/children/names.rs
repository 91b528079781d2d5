//! What children are called: one function makes the names, whoever needs them.

use sha2::{Digest as _, Sha256};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;
/// The longest value of a label.
const LONGEST_LABEL_VALUE: usize = 63;

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
    /// The names of the children of the ScheduledMachine called `name`.
    pub fn of(name: &str) -> Self {
        let child = |suffix: &str| format!("{}{suffix}", shortened(name, LONGEST_NAME - suffix.len()));
        ChildNames { machine: child("-machine"), bootstrap: child("-bootstrap"), infrastructure: child("-infra") }
    }
}

/// The value of the label that says whose child an object is.
pub fn label_value(name: &str) -> String {
    shortened(name, LONGEST_LABEL_VALUE)
}

/// The name, or as much of it as fits with a hash of the whole, so that two long names stay apart.
fn shortened(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = short_hash(name);
    // Names of objects are ASCII, so any place is a boundary; what is left must not end in a mark.
    let kept = name.get(..longest - hash.len() - 1).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{kept}-{hash}")
}

/// Ten digits that tell two texts apart.
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
    fn short_names_are_kept() {
        let names = ChildNames::of("desk-01");
        assert_eq!(names.machine, "desk-01-machine");
        assert_eq!(names.bootstrap, "desk-01-bootstrap");
        assert_eq!(names.infrastructure, "desk-01-infra");
        assert_eq!(label_value("desk-01"), "desk-01");
    }

    #[test]
    fn long_names_that_differ_only_at_their_end_stay_apart() {
        let (a, b) = ("x".repeat(250) + "aaa", "x".repeat(250) + "bbb");
        assert_ne!(ChildNames::of(&a).machine, ChildNames::of(&b).machine);
        assert_ne!(label_value(&a), label_value(&b));
    }

    proptest! {
        #[test]
        fn every_name_is_one_the_api_server_takes(name in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?") {
            let is_name = |it: &str, longest: usize| {
                it.len() <= longest
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
