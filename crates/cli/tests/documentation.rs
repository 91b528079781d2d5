//! Runs every `console` block of the documentation, and compares the output.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Example {
    page: PathBuf,
    command: String,
    output: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
    found
}

fn examples(page: &Path) -> Vec<Example> {
    let text = fs::read_to_string(page).unwrap();
    let blocks = text.split("```console\n").skip(1).map(|it| it.split("```").next().unwrap());
    blocks
        .map(|block| {
            let (command, output) =
                block.strip_prefix("$ ").expect("a block starts with its command").split_once('\n').unwrap();
            Example { page: page.to_owned(), command: command.to_owned(), output: output.to_owned() }
        })
        .collect()
}

/// Whether the output is reproducible: a timeline marks the current time, so its days must be in the past.
fn is_reproducible(command: &str) -> bool {
    if !command.contains(" timeline ") {
        return true;
    }
    let from = command.split_whitespace().skip_while(|it| *it != "--from").nth(1);
    let latest = jiff::Zoned::now().date() - jiff::Span::new().days(14);
    from.is_some_and(|it| it.parse::<jiff::civil::Date>().unwrap() < latest)
}

#[test]
fn console_blocks_print_documented_output() {
    let root = root();
    let mut all = examples(&root.join("README.md"));
    for page in pages(&root.join("docs")) {
        all.extend(examples(&page));
    }
    assert!(all.len() >= 5, "the documentation has too few examples");
    for Example { page, command, output } in all {
        let arguments =
            command.strip_prefix("kubectl 5spot ").expect("console blocks contain only commands of the plugin");
        let run = Command::new(env!("CARGO_BIN_EXE_kubectl-5spot"))
            .args(arguments.split_whitespace())
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(is_reproducible(&command), "{command}: use --from with a date in the past");
        let printed = String::from_utf8(run.stdout).unwrap() + &String::from_utf8(run.stderr).unwrap();
        assert_eq!(printed, output, "{}: {command}", page.display());
    }
}
