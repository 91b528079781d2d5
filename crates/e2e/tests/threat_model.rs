//! Every test that the threat model names exists.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fivespot_e2e::{read_repo_file, repo_root};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found
}

/// The functions with a test attribute.
fn tests_in(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && !line.starts_with("//")
        {
            if is_test {
                found.extend(rest.split('(').next());
            }
            is_test = false;
        }
    }
    found
}

/// Every test of the repository, as `<file>::<function>`.
fn all_tests() -> BTreeSet<String> {
    let files = ["crates", "xtask"].into_iter().flat_map(|it| rust_files(&repo_root().join(it)));
    let mut all = BTreeSet::new();
    for file in files {
        let (name, source) = (file.file_stem().unwrap().to_string_lossy(), fs::read_to_string(&file).unwrap());
        all.extend(tests_in(&source).into_iter().map(|it| format!("{name}::{it}")));
    }
    all
}

/// The test names in each `(tested: …)`.
fn named_in(page: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for claim in page.split("(tested").skip(1).map(|it| it.split(')').next().unwrap()) {
        let claim_names = claim.strip_prefix(':').unwrap_or_else(|| panic!("no test name in {claim:?}"));
        // Names may be wrapped onto the next line.
        for name in claim_names.split(',').map(str::trim) {
            let bare = name.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
            names.push(bare.unwrap_or_else(|| panic!("{name:?} is not a test name in backticks")));
        }
    }
    names
}

#[test]
fn every_test_named_in_the_threat_model_exists() {
    let page = read_repo_file("docs/security/threat-model.md");
    let (named, all) = (named_in(&page), all_tests());
    assert!(named.len() >= 20, "the threat model names too few tests");
    let missing: Vec<_> = named.iter().filter(|it| !all.contains(**it)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "tests named in the threat model do not exist");
}

#[test]
fn finds_test_functions_and_quoted_names() {
    let source =
        "#[tokio::test]\nasync fn one() {}\nfn two() {}\n#[test]\n#[should_panic]\nfn three() {}\n// fn four()";
    assert_eq!(tests_in(source), ["one", "three"]);
    assert_eq!(named_in("This (tested: `a::b`, `c::d`) and (tested: `e::f`)."), ["a::b", "c::d", "e::f"]);
}
