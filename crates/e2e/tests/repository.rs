//! What a contributor relies on: the map names files that exist, links resolve, and texts use the terms of the glossary.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

use std::fs;
use std::path::{Path, PathBuf};

use fivespot_e2e::{read_repo_file, repo_root};

/// Words that CONTRIBUTING.md replaces with established terms.
const BANNED_WORDS: &[&str] = &["told", "heard", "nobody", "somebody", "whoever", "anew", "mend", "mended"];
/// This file has the list above.
const THIS_FILE: &str = "crates/e2e/tests/repository.rs";
const TEXT_EXTENSIONS: &[&str] = &["rs", "md", "yaml", "toml", "json", "sh", "tpl", "txt", "snap"];

/// All files below a directory, without build output and the Go modules' checksums.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                found.extend(files_below(&path));
            }
        } else {
            found.push(path);
        }
    }
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(repo_root()).unwrap().to_string_lossy().into_owned()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension))
}

/// The text between pairs of backticks, outside of fenced blocks.
fn code_spans(page: &str) -> Vec<String> {
    let outside: String = page.split("```").step_by(2).collect();
    outside.split('`').skip(1).step_by(2).map(|it| it.split_whitespace().collect()).collect()
}

/// Targets of Markdown links, outside of fenced blocks.
fn link_targets(page: &str) -> Vec<String> {
    let outside: String = page.split("```").step_by(2).collect();
    outside.split("](").skip(1).filter_map(|it| it.split(')').next()).map(str::to_owned).collect()
}

#[test]
fn texts_use_established_terms() {
    let texts = files_below(repo_root()).into_iter().filter(|it| has_extension(it, TEXT_EXTENSIONS));
    let (mut read, mut found) = (0, Vec::new());
    for path in texts.filter(|it| relative(it) != THIS_FILE) {
        read += 1;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let is_banned = |word: &str| BANNED_WORDS.iter().any(|banned| word.eq_ignore_ascii_case(banned));
            if line.split(|it: char| !it.is_alphanumeric()).any(is_banned) {
                found.push(format!("{}:{}: {}", relative(&path), number + 1, line.trim()));
            }
        }
    }
    assert!(read > 400, "only {read} files");
    assert_eq!(found, Vec::<String>::new(), "see the section on style in CONTRIBUTING.md");
}

#[test]
fn files_named_in_the_architecture_map_exist() {
    let all: Vec<String> = files_below(repo_root()).iter().map(|it| format!("/{}", relative(it))).collect();
    let names: Vec<String> = ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"]
        .iter()
        .flat_map(|page| code_spans(&read_repo_file(page)))
        .filter(|it| it.contains('/') && !it.contains(['<', '*', '=', ':', '$', '|']))
        .filter(|it| it.ends_with('/') || has_extension(Path::new(it), TEXT_EXTENSIONS))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    // Names are relative to a crate or abbreviated, so a path that ends with the name, or contains the directory, counts.
    let exists = |name: &String| {
        let (file, directory) = (format!("/{name}"), format!("/{}/", name.trim_end_matches('/')));
        all.iter().any(|path| path.ends_with(&file) || path.contains(&directory))
    };
    let missing: Vec<&String> = names.iter().filter(|it| !exists(it)).collect();
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn relative_links_resolve() {
    let (mut checked, mut broken) = (0, Vec::new());
    for page in files_below(repo_root()).iter().filter(|it| has_extension(it, &["md"])) {
        for target in link_targets(&fs::read_to_string(page).unwrap()) {
            let path = target.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            if !page.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {target}", relative(page)));
            }
        }
    }
    assert!(checked > 50, "only {checked} links");
    assert_eq!(broken, Vec::<String>::new());
}
