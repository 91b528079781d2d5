//! The documentation names everything that the controller says, and everything that can be said to it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use fivespot_api::{Phase, conditions};
use fivespot_planner::event::Reason;

fn repository(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Asks that a page has each of these, as code.
#[track_caller]
fn assert_told<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) {
    let text = repository(page);
    let told = |name: &&str| text.contains(&format!("`{name}`")) || text.contains(&format!("`{name} "));
    let names: BTreeSet<&str> = names.into_iter().collect();
    assert!(!names.is_empty());
    let missing: Vec<&str> = names.into_iter().filter(|it| !told(it)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "{page} does not tell of these");
}

/// The text between the first two of a mark.
fn between(text: &str, mark: char) -> &str {
    text.split(mark).nth(1).unwrap()
}

#[test]
fn every_phase_is_explained() {
    assert_told("docs/concepts/lifecycle.md", Phase::ALL.map(Phase::as_str));
}

#[test]
fn every_condition_and_reason_says_what_to_do() {
    let table = conditions::table();
    assert_told("docs/how-to/troubleshoot-a-machine.md", table.iter().flat_map(|(name, _, reason)| [*name, *reason]));
}

#[test]
fn every_event_says_what_to_do() {
    assert_told("docs/how-to/troubleshoot-a-machine.md", Reason::ALL.iter().map(|it| it.as_str()));
}

/// Families that nothing was counted in do not show in the page, so the names are taken from where they are registered.
#[test]
fn every_metric_is_in_the_reference() {
    let source = include_str!("../src/metrics.rs");
    let registered = source.split("registry.register(").skip(1).map(|it| between(it, '"')).collect::<Vec<_>>();
    assert!(registered.len() >= 12, "{registered:?}");
    let page = repository("docs/reference/controller.md");
    for name in registered {
        // Counters and the build's information get a suffix on the wire.
        let names = ["", "_total", "_info"].map(|suffix| format!("| `fivespot_{name}{suffix}` |"));
        assert!(names.iter().any(|it| page.contains(it)), "the reference does not tell of fivespot_{name}");
    }
}

#[test]
fn every_flag_and_variable_is_in_the_reference() {
    let help = Command::new(env!("CARGO_BIN_EXE_5spot")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.split_whitespace().filter(|it| it.starts_with("--") && !["--help", "--version"].contains(it));
    let variables = help.split("[env: ").skip(1).map(|it| it.split(['=', ']']).next().unwrap());
    assert_told("docs/reference/controller.md", flags.chain(variables).chain(["KUBECONFIG"]));
}

#[test]
fn every_endpoint_is_in_the_reference() {
    let source = include_str!("../src/serve.rs");
    let paths: Vec<&str> = source.split(".route(").skip(1).map(|it| between(it, '"')).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    assert_told("docs/reference/controller.md", paths);
}

#[test]
fn every_permission_is_in_the_reference() {
    let roles =
        ["rbac.yaml", "management-nodes.yaml"].map(|it| repository(&format!("deploy/controller/{it}"))).concat();
    let lists = roles.lines().filter(|it| it.trim_start().starts_with("resources: ["));
    let resources: Vec<&str> = lists.flat_map(|it| it.split('"').skip(1).step_by(2)).collect();
    assert!(resources.contains(&"pods/eviction"), "{resources:?}");
    assert_told("docs/reference/controller.md", resources);
}
