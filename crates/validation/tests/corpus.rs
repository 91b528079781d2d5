//! Runs the validator over `testdata/specs`. The folder of a manifest determines which component rejects it, and its header
//! (`# field: ...`) which field the error must name. The same corpus runs against a real API server in `crates/e2e`.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fivespot_validation::admission;
use fivespot_validation::manifest::{self, ManifestError, ValidManifest};
use fivespot_validation::validate::EnforcedBy;

fn corpus(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/specs").join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn validate(text: &str) -> Result<ValidManifest, Vec<ManifestError>> {
    manifest::validate(&fivespot_api::crd(), &serde_saphyr::from_str(text).unwrap())
}

fn expected_field(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# field: ")).expect("the header names the field")
}

#[test]
fn valid_manifests_are_accepted() {
    for (path, text) in corpus("valid") {
        if let Err(errors) = validate(&text) {
            panic!("{}: {errors:?}", path.display());
        }
    }
}

#[test]
fn schema_violations_are_rejected_by_schema() {
    for (path, text) in corpus("invalid/schema") {
        let errors = validate(&text).expect_err(&path.display().to_string());
        assert!(errors.iter().all(|it| matches!(it, ManifestError::Schema(_))), "{}: {errors:?}", path.display());
        assert!(errors.iter().any(|it| it.field() == expected_field(&text)), "{}: {errors:?}", path.display());
    }
}

#[test]
fn rule_violations_pass_schema_and_are_rejected_by_rule() {
    let folders = [("invalid/policy", EnforcedBy::Policy), ("invalid/controller", EnforcedBy::Controller)];
    for (folder, enforced_by) in folders {
        for (path, text) in corpus(folder) {
            let errors = validate(&text).expect_err(&path.display().to_string());
            let is_expected =
                |it: &ManifestError| matches!(it, ManifestError::Rule(error) if error.enforced_by == enforced_by);
            assert!(errors.iter().all(is_expected), "{}: {errors:?}", path.display());
            assert!(
                errors.iter().any(|it| it.field().starts_with(expected_field(&text))),
                "{}: {errors:?}",
                path.display()
            );
        }
    }
}

#[test]
fn every_policy_rule_is_violated_by_a_manifest() {
    let violated: Vec<String> = corpus("invalid/policy")
        .iter()
        .flat_map(|(_, text)| validate(text).expect_err("all manifests of the folder are invalid"))
        .filter_map(|it| if let ManifestError::Rule(error) = it { Some(error.rule) } else { None })
        .collect();
    let rules = admission::rules();
    let rules: Vec<&str> = rules.iter().map(|rule| rule.message).collect();
    let untested: Vec<_> = rules.iter().filter(|rule| !violated.iter().any(|it| it == *rule)).collect();
    assert_eq!(untested, Vec::<&&str>::new(), "no manifest in testdata/specs/invalid/policy violates these rules");
    let unknown: Vec<_> = violated.iter().filter(|it| !rules.contains(&it.as_str())).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "the policy does not contain these rules");
}

/// All error messages in one snapshot, for review.
#[test]
fn error_messages() {
    let mut messages = String::new();
    for folder in ["invalid/schema", "invalid/policy", "invalid/controller"] {
        for (path, text) in corpus(folder) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            for error in validate(&text).expect_err("all manifests of the folder are invalid") {
                writeln!(messages, "{folder}/{name}\n    {error}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(messages);
}
