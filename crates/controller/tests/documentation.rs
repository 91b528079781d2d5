//! The documentation covers every phase, condition, event, metric, flag, endpoint and permission of the controller.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use fivespot_api::{Phase, conditions};
use fivespot_planner::events::Reason;

const METRICS_SOURCE: &str = include_str!("../src/runtime/metrics.rs");
const ENDPOINTS_SOURCE: &str = include_str!("../src/runtime/http_server.rs");

const LIFECYCLE: &str = "docs/concepts/lifecycle.md";
const TROUBLESHOOTING: &str = "docs/how-to/troubleshoot-a-machine.md";
const REFERENCE: &str = "docs/reference/controller.md";

fn read_repo_file(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Asserts that a page contains each of these names, formatted as code.
#[track_caller]
fn assert_documented<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) {
    let text = read_repo_file(page);
    let is_documented = |name: &&str| text.contains(&format!("`{name}`")) || text.contains(&format!("`{name} "));
    let names: BTreeSet<&str> = names.into_iter().collect();
    assert!(!names.is_empty());
    let missing: Vec<&str> = names.into_iter().filter(|name| !is_documented(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "not documented in {page}");
}

/// The first string literal.
fn first_literal(source: &str) -> &str {
    source.split('"').nth(1).unwrap()
}

#[test]
fn every_phase_is_documented() {
    assert_documented(LIFECYCLE, Phase::ALL.map(Phase::as_str));
}

#[test]
fn every_condition_reason_is_documented() {
    let table = conditions::table();
    assert_documented(TROUBLESHOOTING, table.iter().flat_map(|(name, _, reason)| [*name, *reason]));
}

#[test]
fn every_event_reason_is_documented() {
    assert_documented(TROUBLESHOOTING, Reason::ALL.iter().map(|reason| reason.as_str()));
}

/// Reads the names from the source, because the endpoint omits families without samples.
#[test]
fn every_metric_is_documented() {
    let registered: Vec<&str> = METRICS_SOURCE.split("registry.register(").skip(1).map(first_literal).collect();
    assert!(registered.len() >= 12, "{registered:?}");
    let page = read_repo_file(REFERENCE);
    for name in registered {
        // OpenMetrics appends a suffix to counters and info metrics.
        let names = ["", "_total", "_info"].map(|suffix| format!("| `fivespot_{name}{suffix}` |"));
        assert!(names.iter().any(|it| page.contains(it)), "fivespot_{name} is not documented in {REFERENCE}");
    }
}

#[test]
fn every_flag_and_variable_is_documented() {
    let help = Command::new(env!("CARGO_BIN_EXE_5spot")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.split_whitespace().filter(|it| it.starts_with("--") && !["--help", "--version"].contains(it));
    let variables = help.split("[env: ").skip(1).map(|it| it.split(['=', ']']).next().unwrap());
    assert_documented(REFERENCE, flags.chain(variables).chain(["KUBECONFIG"]));
}

#[test]
fn every_endpoint_is_documented() {
    let paths: Vec<&str> = ENDPOINTS_SOURCE.split(".route(").skip(1).map(first_literal).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    assert_documented(REFERENCE, paths);
}

#[test]
fn every_permission_is_documented() {
    let roles =
        ["rbac.yaml", "management-nodes.yaml"].map(|it| read_repo_file(&format!("deploy/controller/{it}"))).concat();
    let lists = roles.lines().filter(|line| line.trim_start().starts_with("resources: ["));
    let resources: Vec<&str> = lists.flat_map(|line| line.split('"').skip(1).step_by(2)).collect();
    assert!(resources.contains(&"pods/eviction"), "{resources:?}");
    assert_documented(REFERENCE, resources);
}
