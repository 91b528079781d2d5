//! `windows` and `timeline` without a cluster, and the errors of the plugin.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{Read as _, Write as _};
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

/// Asserts exit code 2, an empty standard output, and one line on standard error that contains `expected`.
fn assert_rejected(output: &Output, expected: &str) {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(output.stdout, b"", "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: "), "{error}");
    assert!(error.contains(expected), "{error}");
}

const TWO_MACHINES: &str = "
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
fn name_selects_machine_in_file() {
    let output = run_on(TWO_MACHINES, &[&["windows", "evenings", "-f", "-", "-o", "json"], &WEEK[..]].concat());
    let windows: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(windows, serde_json::json!([{ "open": "2026-11-16T20:00:00Z", "close": "2026-11-16T21:00:00Z" }]));
}

#[test]
fn disabled_schedule_has_windows() {
    let output = run_on(TWO_MACHINES, &[&["windows", "mornings", "-f", "-"], &WEEK[..]].concat());
    let text = stdout(&output);
    assert!(text.contains("mornings (UTC, disabled: the controller ignores these windows)"), "{text}");
    assert!(text.contains("Mon 2026-11-16 08:00 UTC  Mon 2026-11-16 09:00 UTC  1h"), "{text}");
}

#[test]
fn ambiguous_selection_is_rejected() {
    assert_rejected(
        &run_on(TWO_MACHINES, &["windows", "-f", "-"]),
        "contains 2 ScheduledMachines, select one by NAME and -n",
    );
    assert_rejected(&run_on(TWO_MACHINES, &["windows", "-f", "-"]), "mornings, evenings");
    assert_rejected(
        &run_on(TWO_MACHINES, &["windows", "nights", "-f", "-"]),
        "no such ScheduledMachine, only: mornings, evenings",
    );
}

#[test]
fn timeline_json() {
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
fn timeline_ascii() {
    let output = run(&["timeline", "-f", "examples/overnight.yaml", "--from", "2026-06-15", "--days", "2", "--ascii"]);
    assert!(stdout(&output).is_ascii());
    assert!(stdout(&output).contains("Tue 16 Jun  ###############..............................###"));
}

#[test]
fn error_outside_schedule_is_a_warning() {
    let output = run(&["windows", "-f", "testdata/specs/invalid/schema/priority-not-an-integer.yaml", "-o", "json"]);
    stdout(&output);
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: "));
}

#[test]
fn invalid_input_ends_with_one_line_and_code_2() {
    let always = "testdata/specs/valid/always.yaml";
    let cases: &[(&[&str], &str)] = &[
        (&[], "a subcommand is required: windows, timeline, lint (see 'kubectl 5spot --help')"),
        (&["windows", "a b"], "\"a b\" is not a valid name of a ScheduledMachine"),
        (&["windows", ""], "\"\" is not a valid name of a ScheduledMachine"),
        (&["windows", "a/b"], "\"a/b\" is not a valid name"),
        (&["windows", "a", "-n", "a/b"], "is not a valid name of a namespace"),
        (&["timeline", "--asci"], "(see 'kubectl 5spot timeline --help')"),
        (&["windows"], "specify a ScheduledMachine: its NAME in the cluster, or -f FILE"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["windows", "--frm", "x"], "--from"),
        (&["windows", "-f"], "--filename"),
        (&["windows", "-f", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (&["windows", "-f", "crates"], "crates: Is a directory"),
        (&["windows", "-f", "rustfmt.toml"], "rustfmt.toml"),
        (&["windows", "-f", "deploy/crds/scheduledmachine.yaml"], "contains no ScheduledMachine"),
        (&["windows", "-f", always, "-o", "xml"], "[possible values: text, json]"),
        (&["windows", "-f", always, "--from", "tomorrow"], "--from: \"tomorrow\""),
        (&["windows", "-f", always, "--from", "2026-02-30"], "this date does not exist"),
        (&["windows", "-f", always, "--from", "2026-02-03", "--until", "2026-02-03"], "must be later than --from"),
        (&["windows", "-f", always, "--context", "lab"], "cannot be used with"),
        (&["windows", "-f", "/dev/zero"], "is larger than 256 MiB"),
        (&["timeline", "-f", always, "--days", "0"], "0 is not in 1..=366"),
        (
            &["timeline", "-f", always, "--days", "366", "--from", "9999-12-01"],
            "the last day must not be later than 9999-12-30",
        ),
        (&["windows", "some"], "set KUBECONFIG"),
        (&["windows", "some", "--kubeconfig", "/nonexistent"], "/nonexistent"),
    ];
    for (arguments, expected) in cases {
        assert_rejected(&run(arguments), expected);
    }
}

#[test]
fn invalid_schedules_of_the_corpus_are_rejected() {
    let mut rejected = 0;
    for folder in ["schema", "policy", "controller"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/specs/invalid").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let field = text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
            if field.starts_with("spec.schedule") {
                let field = field.strip_prefix("spec.schedule").unwrap().trim_start_matches('.');
                let field = field.split(['[', '.']).next().unwrap();
                assert_rejected(&run(&["windows", "-f", path.to_str().unwrap()]), field);
                rejected += 1;
            }
        }
    }
    assert!(rejected > 20, "the corpus has too few invalid schedules");
}

const SAME_NAME: &str = "
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachineList
items:
  - apiVersion: 5spot.finos.org/v1alpha1
    kind: ScheduledMachine
    metadata: {name: desk, namespace: lab}
    spec:
      clusterName: c
      schedule: {daysOfWeek: [mon], hoursOfDay: [\"8\"]}
      bootstrapSpec: {apiVersion: k0smotron.io/v1beta1, kind: K0sWorkerConfig, spec: {}}
      infrastructureSpec: {apiVersion: k0smotron.io/v1beta1, kind: RemoteMachine, namespace: lab, spec: {}}
  - apiVersion: 5spot.finos.org/v1alpha1
    kind: ScheduledMachine
    metadata: {name: desk, namespace: office}
    spec:
      clusterName: c
      schedule: {daysOfWeek: [mon], hoursOfDay: [\"20\"]}
      bootstrapSpec: {apiVersion: k0smotron.io/v1beta1, kind: K0sWorkerConfig, spec: {}}
      infrastructureSpec: {apiVersion: k0smotron.io/v1beta1, kind: RemoteMachine, spec: {}}
";

#[test]
fn namespace_selects_machine_in_file() {
    assert_rejected(&run_on(SAME_NAME, &["windows", "desk", "-f", "-"]), "lab/desk, office/desk");
    let output = run_on(SAME_NAME, &[&["windows", "desk", "-n", "office", "-f", "-"], &WEEK[..]].concat());
    assert!(stdout(&output).contains("Mon 2026-11-16 20:00 UTC"));
}

#[test]
fn namespace_option_is_default_for_objects_without_namespace() {
    let one = SAME_NAME.replace(", namespace: lab}", "}").replace("name: desk, namespace: office", "name: other");
    let output = run_on(&one, &[&["windows", "desk", "-n", "lab", "-f", "-"], &WEEK[..]].concat());
    stdout(&output);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn large_files_in_yaml_and_json() {
    let machine = |index: usize| {
        serde_json::json!({
            "apiVersion": "5spot.finos.org/v1alpha1", "kind": "ScheduledMachine",
            "metadata": { "name": format!("desk-{index}") },
            "spec": {
                "clusterName": "c", "schedule": { "cron": "0 9 * * *" },
                "bootstrapSpec": { "apiVersion": "k0smotron.io/v1beta1", "kind": "B", "spec": { "args": ["a", "b", "c"] } },
                "infrastructureSpec": { "apiVersion": "k0smotron.io/v1beta1", "kind": "I", "spec": {} },
            },
        })
    };
    let machines: Vec<_> = (0..3_000).map(machine).collect();
    let documents = machines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": machines }).to_string();
    for text in [documents, list] {
        let output = run_on(&text, &[&["windows", "desk-2999", "-f", "-"], &WEEK[..]].concat());
        assert!(stdout(&output).contains("7 windows, 7h in all"));
    }
}

#[test]
fn other_api_group_is_reported() {
    let other_group = TWO_MACHINES.replace("5spot.finos.org/v1alpha1", "capi.5spot.io/v1alpha1");
    assert_rejected(&run_on(&other_group, &["windows", "-f", "-"]), "but one of \"capi.5spot.io/v1alpha1\"");
}

#[test]
fn json_times_are_whole_seconds() {
    let always = ["windows", "-f", "testdata/specs/valid/always.yaml", "-o", "json"];
    let windows: serde_json::Value = serde_json::from_str(&stdout(&run(&always))).unwrap();
    assert!(!windows[0]["open"].as_str().unwrap().contains('.'), "{windows}");
}

/// The windows of ten thousand years do not fit into memory.
#[test]
fn json_windows_are_streamed() {
    let every_minute =
        TWO_MACHINES.replace("{daysOfWeek: [mon], hoursOfDay: [\"20\"]}", "{cron: \"* * * * *\", duration: 1s}");
    let mut child =
        plugin(&["windows", "evenings", "-f", "-", "-o", "json", "--from", "0001-01-01", "--until", "9999-01-01"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    child.stdin.take().unwrap().write_all(every_minute.as_bytes()).unwrap();
    let mut read = vec![0; 200_000];
    child.stdout.as_mut().unwrap().read_exact(&mut read).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        read.starts_with(b"[\n  {\n    \"open\": \"0001-01-01T00:00:00Z\""),
        "{}",
        String::from_utf8_lossy(&read[..100])
    );
}

#[test]
fn timeline_with_windows_below_a_minute() {
    let almost =
        TWO_MACHINES.replace("{daysOfWeek: [mon], hoursOfDay: [\"20\"]}", "{cron: \"* 9 * * *\", duration: 59s}");
    let output =
        run_on(&almost, &["timeline", "evenings", "-f", "-", "--from", "2026-06-15", "--days", "1", "--ascii"]);
    assert!(
        stdout(&output).contains("Mon 15 Jun  ..................++............................     59m"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn unwritable_standard_error_does_not_panic() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = plugin(&["frobnicate"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn closed_pipe_is_not_a_failure() {
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

/// An invalid name is only a warning, and names of other objects are part of an error.
#[test]
fn control_characters_of_a_manifest_are_escaped() {
    let manifest = TWO_MACHINES.replace("mornings", "\"a\\e[2J\\x9bb\"");
    let name = "a\u{1b}[2J\u{9b}b";
    for arguments in [
        &["windows", "-f", "-", name] as &[&str],
        &["timeline", "-f", "-", "--ascii", name],
        &["timeline", "-f", "-", "-o", "json", name],
        &["windows", "-f", "-", "another"],
        &["windows", "-f", "-"],
    ] {
        let output = run_on(&manifest, arguments);
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        // The styles of the timeline are removed where the output is not a terminal.
        assert!(!printed.contains(|it: char| it != '\n' && it.is_control()), "{arguments:?}: {printed:?}");
        assert!(printed.contains("[2J"), "{arguments:?}: {printed}");
    }
}
