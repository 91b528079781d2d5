//! The offline validator's half of "one corpus, one truth": every valid manifest passes, every invalid one is refused,
//! by whom its folder says, and the finding names the field that the manifest's own header names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fivespot_validation::admission;
use fivespot_validation::document::{Document, DocumentError, judge};
use fivespot_validation::validate::Judge;

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

fn judged(text: &str) -> Result<Document, Vec<DocumentError>> {
    judge(&fivespot_api::crd(), &serde_saphyr::from_str(text).unwrap())
}

fn named_field(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# field: ")).expect("an invalid manifest names its field")
}

#[test]
fn every_valid_manifest_passes() {
    for (path, text) in corpus("valid") {
        if let Err(errors) = judged(&text) {
            panic!("{}: {errors:?}", path.display());
        }
    }
}

#[test]
fn what_the_schema_refuses_is_refused_by_the_schema() {
    for (path, text) in corpus("invalid/schema") {
        let errors = judged(&text).expect_err(&path.display().to_string());
        assert!(errors.iter().all(|it| matches!(it, DocumentError::Schema(_))), "{}: {errors:?}", path.display());
        assert!(errors.iter().any(|it| it.field() == named_field(&text)), "{}: {errors:?}", path.display());
    }
}

#[test]
fn what_a_rule_refuses_passes_the_schema_and_is_refused_by_the_rule() {
    for (folder, judge) in [("invalid/policy", Judge::Policy), ("invalid/controller", Judge::Controller)] {
        for (path, text) in corpus(folder) {
            let errors = judged(&text).expect_err(&path.display().to_string());
            let is_of_the_folder =
                |it: &DocumentError| matches!(it, DocumentError::Rule(error) if error.judge == judge);
            assert!(errors.iter().all(is_of_the_folder), "{}: {errors:?}", path.display());
            assert!(
                errors.iter().any(|it| it.field().starts_with(named_field(&text))),
                "{}: {errors:?}",
                path.display()
            );
        }
    }
}

#[test]
fn every_rule_of_the_policy_has_a_bad_example() {
    let broken: Vec<String> = corpus("invalid/policy")
        .iter()
        .flat_map(|(_, text)| judged(text).expect_err("covered above"))
        .filter_map(|it| if let DocumentError::Rule(error) = it { Some(error.rule) } else { None })
        .collect();
    let rules = admission::rules();
    let rules: Vec<&str> = rules.iter().map(|it| it.message).collect();
    let without: Vec<_> = rules.iter().filter(|rule| !broken.iter().any(|it| it == *rule)).collect();
    assert_eq!(without, Vec::<&&str>::new(), "no file of testdata/specs/invalid/policy breaks these");
    let unknown: Vec<_> = broken.iter().filter(|it| !rules.contains(&it.as_str())).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "the policy has no such rules");
}

/// What a person reads, all of it in one place, so that a change of words is seen.
#[test]
fn every_refusal_reads_well() {
    let mut told = String::new();
    for folder in ["invalid/schema", "invalid/policy", "invalid/controller"] {
        for (path, text) in corpus(folder) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            for error in judged(&text).expect_err("covered above") {
                writeln!(told, "{folder}/{name}\n    {error}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(told);
}
