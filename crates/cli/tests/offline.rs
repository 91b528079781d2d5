//! The plugin with no cluster at hand: answers, and one clear line for everything a person can get wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn plugin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-5spot"));
    command
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .env("RUST_BACKTRACE", "1");
    command
}

fn run(arguments: &[&str]) -> Output {
    plugin(arguments).output().unwrap()
}

fn run_on(manifest: &str, arguments: &[&str]) -> Output {
    let mut child =
        plugin(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Exit code 2, nothing on standard output, one line that contains `words`.
fn assert_refused(output: &Output, words: &str) {
    let told = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert_eq!(output.stdout, b"", "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("error: "), "{told}");
    assert!(told.contains(words), "{told}");
}

const TWO: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: unrelated}
---
apiVersion: v1
kind: List
items:
  - apiVersion: 5spot.finos.org/v1alpha1
    kind: ScheduledMachine
    metadata: {name: mornings}
    spec: &spec
      clusterName: c
      schedule: {daysOfWeek: [mon], hoursOfDay: [\"8\"], enabled: false}
      bootstrapSpec: {apiVersion: k0smotron.io/v1beta1, kind: K0sWorkerConfig, spec: {}}
      infrastructureSpec: {apiVersion: k0smotron.io/v1beta1, kind: RemoteMachine, spec: {}}
---
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata: {name: evenings}
spec:
  clusterName: c
  schedule: {daysOfWeek: [mon], hoursOfDay: [\"20\"]}
  bootstrapSpec: {apiVersion: k0smotron.io/v1beta1, kind: K0sWorkerConfig, spec: {}}
  infrastructureSpec: {apiVersion: k0smotron.io/v1beta1, kind: RemoteMachine, spec: {}}
";

const WEEK: [&str; 4] = ["--from", "2026-11-16", "--until", "2026-11-23"];

#[test]
fn one_of_several_in_a_file_is_chosen_by_its_name() {
    let output = run_on(TWO, &[&["windows", "evenings", "-f", "-", "-o", "json"], &WEEK[..]].concat());
    let windows: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(windows, serde_json::json!([{ "open": "2026-11-16T20:00:00Z", "close": "2026-11-16T21:00:00Z" }]));
}

#[test]
fn a_disabled_schedule_has_windows_all_the_same_and_says_so() {
    let output = run_on(TWO, &[&["windows", "mornings", "-f", "-"], &WEEK[..]].concat());
    let told = stdout(&output);
    assert!(told.contains("disabled"), "{told}");
    assert!(told.contains("Mon 2026-11-16 08:00 UTC  Mon 2026-11-16 09:00 UTC  1h"), "{told}");
}

#[test]
fn several_in_a_file_and_no_name_is_a_question() {
    assert_refused(&run_on(TWO, &["windows", "-f", "-"]), "name the one you mean: mornings, evenings");
    assert_refused(&run_on(TWO, &["windows", "nights", "-f", "-"]), "no ScheduledMachine called \"nights\"");
}

#[test]
fn the_timeline_for_scripts_has_every_day_with_its_windows() {
    let output = run(&[
        "timeline",
        "-f",
        "testdata/specs/valid/wrap-around.yaml",
        "--from",
        "2026-10-03",
        "--days",
        "2",
        "-o",
        "json",
    ]);
    insta::assert_snapshot!(stdout(&output));
}

#[test]
fn the_picture_can_be_drawn_in_ascii() {
    let output = run(&["timeline", "-f", "examples/overnight.yaml", "--from", "2026-11-16", "--days", "2", "--ascii"]);
    assert!(stdout(&output).is_ascii());
    assert!(stdout(&output).contains("Tue 17 Nov  ###############..............................###"));
}

#[test]
fn a_mistake_elsewhere_in_the_manifest_is_a_warning() {
    let output = run(&["windows", "-f", "testdata/specs/invalid/schema/priority-a-word.yaml", "-o", "json"]);
    stdout(&output);
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: "));
}

#[test]
fn what_a_person_gets_wrong_ends_with_one_line_and_code_2() {
    let always = "testdata/specs/valid/always.yaml";
    let cases: &[(&[&str], &str)] = &[
        (&["windows"], "say which ScheduledMachine: its NAME in the cluster, or -f FILE"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["windows", "--frm", "x"], "--from"),
        (&["windows", "-f"], "--filename"),
        (&["windows", "-f", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (&["windows", "-f", "crates"], "crates: Is a directory"),
        (&["windows", "-f", "rustfmt.toml"], "rustfmt.toml"),
        (&["windows", "-f", "deploy/crds/scheduledmachine.yaml"], "holds no ScheduledMachine"),
        (&["windows", "-f", always, "-o", "xml"], "[possible values: text, json]"),
        (&["windows", "-f", always, "--from", "tomorrow"], "--from: \"tomorrow\""),
        (&["windows", "-f", always, "--from", "2026-02-30"], "there is no such date"),
        (&["windows", "-f", always, "--from", "2026-02-03", "--until", "2026-02-03"], "must be later than --from"),
        (&["windows", "-f", always, "-n", "lab"], "cannot be used with"),
        (&["timeline", "-f", always, "--days", "0"], "0 is not in 1..=366"),
        (&["timeline", "-f", always, "--days", "366", "--from", "9999-12-01"], "the calendar ends"),
        (&["windows", "some"], "set KUBECONFIG"),
        (&["windows", "some", "--kubeconfig", "/nonexistent"], "/nonexistent"),
    ];
    for (arguments, words) in cases {
        assert_refused(&run(arguments), words);
    }
}

#[test]
fn every_invalid_schedule_of_the_corpus_is_refused_with_its_field() {
    let mut refused = 0;
    for folder in ["schema", "policy", "controller"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/specs/invalid").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let field = text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
            if field.starts_with("spec.schedule") {
                let field = field.strip_prefix("spec.schedule").unwrap().trim_start_matches('.');
                let field = field.split(['[', '.']).next().unwrap();
                assert_refused(&run(&["windows", "-f", path.to_str().unwrap()]), field);
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "the corpus has lost its schedules");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = plugin(&[
        "windows",
        "-f",
        "testdata/specs/valid/business-hours.yaml",
        "--from",
        "2000-01-01",
        "--until",
        "2090-01-01",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stderr, b"");
}
