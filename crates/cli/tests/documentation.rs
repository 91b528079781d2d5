//! Every `console` block of the documentation is run, and prints what the documentation says it prints.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

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
                block.strip_prefix("$ ").expect("a block begins with its command").split_once('\n').unwrap();
            Example { page: page.to_owned(), command: command.to_owned(), output: output.to_owned() }
        })
        .collect()
}

/// Whether a picture is of days that are over, so that it is the same whenever it is drawn.
fn is_of_the_past(command: &str) -> bool {
    if !command.contains(" timeline ") {
        return true;
    }
    let from = command.split_whitespace().skip_while(|it| *it != "--from").nth(1);
    let latest = jiff::Zoned::now().date() - jiff::Span::new().days(14);
    from.is_some_and(|it| it.parse::<jiff::civil::Date>().unwrap() < latest)
}

#[test]
fn every_command_of_the_documentation_prints_what_it_says() {
    let root = root();
    let mut all = examples(&root.join("README.md"));
    for page in pages(&root.join("docs")) {
        all.extend(examples(&page));
    }
    assert!(all.len() >= 5, "the documentation has lost its examples");
    for Example { page, command, output } in all {
        let arguments = command.strip_prefix("kubectl 5spot ").expect("only our own commands have their output shown");
        let ran = Command::new(env!("CARGO_BIN_EXE_kubectl-5spot"))
            .args(arguments.split_whitespace())
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(is_of_the_past(&command), "{command}: a picture marks the present, so its week has to be over");
        let printed = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
        assert_eq!(printed, output, "{}: {command}", page.display());
    }
}
