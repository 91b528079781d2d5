//! The threat model calls nothing tested that is not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found
}

/// The functions of a file that are run as tests: those behind an attribute that says so.
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

/// Every test of the repository as `<file>::<function>`.
fn all_tests() -> BTreeSet<String> {
    let files = ["crates", "xtask"].into_iter().flat_map(|it| sources(&root().join(it)));
    let mut all = BTreeSet::new();
    for file in files {
        let (name, source) = (file.file_stem().unwrap().to_string_lossy(), fs::read_to_string(&file).unwrap());
        all.extend(tests_in(&source).into_iter().map(|it| format!("{name}::{it}")));
    }
    all
}

/// The names that follow each "tested", up to the end of its parenthesis.
fn named_in(page: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for claim in page.split("(tested").skip(1).map(|it| it.split(')').next().unwrap()) {
        let claim_names = claim.strip_prefix(':').unwrap_or_else(|| panic!("no test is named: {claim:?}"));
        // A line can end anywhere.
        for name in claim_names.split(',').map(str::trim) {
            let bare = name.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
            names.push(bare.unwrap_or_else(|| panic!("{name:?} is no name of a test")));
        }
    }
    names
}

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let page = fs::read_to_string(root().join("docs/security/threat-model.md")).unwrap();
    let (named, all) = (named_in(&page), all_tests());
    assert!(named.len() >= 20, "the threat model has lost its tests");
    let missing: Vec<_> = named.iter().filter(|it| !all.contains(**it)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "there are no such tests");
}

#[test]
fn only_what_is_run_counts_as_a_test() {
    let source =
        "#[tokio::test]\nasync fn one() {}\nfn two() {}\n#[test]\n#[should_panic]\nfn three() {}\n// fn four()";
    assert_eq!(tests_in(source), ["one", "three"]);
    assert_eq!(named_in("This (tested: `a::b`, `c::d`) and (tested: `e::f`)."), ["a::b", "c::d", "e::f"]);
}
