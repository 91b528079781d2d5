//! `kubectl 5spot lint` on the corpus and on other input.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lint(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-5spot"))
        .arg("lint")
        .args(arguments)
        .current_dir(root())
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn results(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap() + &String::from_utf8(output.stderr.clone()).unwrap()
}

fn corpus(folder: &str) -> Vec<String> {
    let folder = format!("testdata/specs/{folder}");
    let entries = std::fs::read_dir(root().join(&folder)).unwrap();
    let mut files: Vec<_> =
        entries.map(|it| format!("{folder}/{}", it.unwrap().file_name().to_string_lossy())).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} is empty");
    files
}

/// Lints all files with one command.
fn lint_all(files: &[String]) -> Output {
    let mut arguments = vec!["-o", "json"];
    arguments.extend(files.iter().flat_map(|it| ["-f", it]));
    lint(&arguments, "")
}

#[test]
fn valid_manifests_are_accepted() {
    let files = corpus("valid");
    let output = lint_all(&files);
    assert!(output.status.success(), "{}", text(&output));
    let results = results(&output);
    assert_eq!(results.len(), files.len());
    for result in results {
        assert_eq!((&result["accepted"], &result["findings"]), (&json!(true), &json!([])), "{result:#}");
    }
}

#[test]
fn invalid_manifests_are_rejected_by_component_of_folder() {
    for (folder, accepted) in [("schema", false), ("policy", false), ("controller", true)] {
        let files = corpus(&format!("invalid/{folder}"));
        let output = lint_all(&files);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let results = results(&output);
        assert_eq!(results.len(), files.len());
        for (file, result) in files.iter().zip(results) {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            let field = text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
            assert_eq!((&result["file"], &result["accepted"]), (&json!(file), &json!(accepted)), "{result:#}");
            let findings = result["findings"].as_array().unwrap();
            assert!(findings.iter().all(|it| it["enforcedBy"] == folder), "{result:#}");
            assert!(findings.iter().any(|it| it["field"].as_str().unwrap().starts_with(field)), "{result:#}");
        }
    }
}

/// Four documents: another kind, a valid object, an object with two errors, and an object of another API group.
fn four_documents() -> String {
    let machine = |api_version: &str, name: &str, cluster: &str, zone: &str| {
        format!(
            "---
apiVersion: {api_version}
kind: ScheduledMachine
metadata: {{name: {name}}}
spec:
  clusterName: {cluster:?}
  schedule: {{daysOfWeek: [mon], hoursOfDay: [\"8\"], timezone: {zone}}}
  bootstrapSpec: {{apiVersion: k0smotron.io/v1beta1, kind: K0sWorkerConfig, spec: {{}}}}
  infrastructureSpec: {{apiVersion: k0smotron.io/v1beta1, kind: RemoteMachine, namespace: lab, spec: {{}}}}
"
        )
    };
    let api_version = "5spot.finos.org/v1alpha1";
    [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: unrelated}\n".to_owned(),
        machine(api_version, "valid", "c", "UTC"),
        machine(api_version, "invalid", "", "Mars/Olympus"),
        machine("capi.5spot.io/v1alpha1", "old-group", "c", "UTC"),
    ]
    .concat()
}

#[test]
fn standard_input_with_several_documents() {
    let output = lint(&["-f", "-", "-n", "lab"], &four_documents());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output),
        "standard input: lab/valid: accepted
standard input: lab/invalid: rejected
  policy      spec.clusterName must not be empty
  controller  spec.schedule.timezone must be an IANA time zone (e.g. 'America/New_York', 'UTC') (timezone: \
         \"Mars/Olympus\": unknown time zone: use an IANA name such as Europe/Paris, or UTC)
standard input: lab/old-group: rejected
  schema      expected a ScheduledMachine of 5spot.finos.org/v1alpha1, found a ScheduledMachine of capi.5spot.io/v1alpha1
error: 2 of 3 ScheduledMachines are invalid
"
    );
}

#[test]
fn namespace_option_is_default_for_objects_without_namespace() {
    let output = lint(&["-f", "-", "-o", "json"], &four_documents());
    let result = &results(&output)[0];
    assert_eq!((&result["namespace"], &result["accepted"]), (&json!("default"), &json!(false)), "{result:#}");
    assert_eq!(result["findings"][0]["field"], "spec.infrastructureSpec.namespace");
}

#[test]
fn unreadable_input_is_one_line_and_code_2() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&[], "", "--filename"),
        (&["-f", "nowhere.yaml"], "", "nowhere.yaml: No such file"),
        (&["-f", "deploy/crds/scheduledmachine.yaml"], "", "contains no ScheduledMachine"),
        (&["-f", "-"], "", "standard input: contains no ScheduledMachine"),
        (&["-f", "-"], "a: [", "is not valid YAML"),
        (&["-f", "-", "-n", "a/b"], "", "is not a valid name of a namespace"),
    ];
    for (arguments, input, expected) in cases {
        let output = lint(arguments, input);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn control_characters_are_escaped() {
    let manifest = "{apiVersion: 5spot.finos.org/v1alpha1, kind: ScheduledMachine, metadata: {name: \"a\\e[2Jb\"}}";
    let output = lint(&["-f", "-"], manifest);
    assert!(text(&output).contains("a\\u{1b}[2Jb"), "{}", text(&output));
    assert!(!text(&output).contains('\u{1b}'));
}

/// The parser quotes a duplicate key, and JSON does not escape every control character.
#[test]
fn control_characters_are_escaped_in_errors_and_json() {
    let output = lint(&["-f", "-"], "{\"\\e[2Ja\": 1, \"\\e[2Ja\": 2}");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("\\u{1b}[2Ja") && !text(&output).contains('\u{1b}'), "{}", text(&output));
    let manifest =
        "{apiVersion: 5spot.finos.org/v1alpha1, kind: ScheduledMachine, metadata: {name: \"a\\e\\x7f\\x9bb\"}}";
    let output = lint(&["-f", "-", "-o", "json"], manifest);
    assert_eq!(results(&output)[0]["name"], "a\u{1b}\u{7f}\u{9b}b");
    assert!(!text(&output).contains(|it: char| it != '\n' && it.is_control()), "{:?}", text(&output));
}

/// Without a limit, a file of some megabytes expands to terabytes.
#[test]
fn expansion_of_aliases_is_limited() {
    let scalar = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(80));
    let sequences = format!("a: &a [{}]\nb: [{}]\n---\n", "x, ".repeat(1000), "*a, ".repeat(100)).repeat(15);
    for bomb in [scalar, sequences] {
        let output = lint(&["-f", "-"], &bomb);
        assert!(
            text(&output).contains("its aliases expand to more than 64 MiB or a million nodes"),
            "{}",
            text(&output)
        );
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn malformed_metadata_and_spec_are_rejected() {
    let malformed =
        ["metadata: null", "metadata: a", "metadata: {name: 5}", "metadata: {name: a, namespace: 5}", "spec: []"];
    for fields in malformed {
        let manifest = format!("apiVersion: 5spot.finos.org/v1alpha1\nkind: ScheduledMachine\n{fields}\n");
        let output = lint(&["-f", "-", "-o", "json"], &manifest);
        assert_eq!(output.status.code(), Some(1), "{fields}: {}", text(&output));
        assert_eq!(results(&output)[0]["accepted"], false, "{fields}");
    }
}

#[test]
fn misspelt_fields_are_reported_with_suggestion() {
    let manifest = four_documents().replace("daysOfWeek", "dayOfWeek").replace("name: valid", "name: valid, label: {}");
    let output = lint(&["-f", "-", "-n", "lab"], &manifest);
    for expected in [
        "unknown field `spec.schedule.dayOfWeek`; did you mean `daysOfWeek`?",
        "unknown field `metadata.label`; did you mean `labels`?",
    ] {
        assert!(text(&output).contains(expected), "{}", text(&output));
    }
}

/// The API server stores the object, so it is accepted.
#[test]
fn errors_of_the_controller_are_distinguished() {
    let output = lint(&["-f", "testdata/specs/invalid/controller/timezone-unknown.yaml"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("timezone-unknown: accepted, but the controller reports an error\n  controller  spec")
    );
    assert!(text(&output).ends_with("error: 1 of 1 ScheduledMachine is invalid\n"), "{}", text(&output));
}

/// A manifest whose bootstrap spec is nested this many levels deep.
fn nested(levels: usize) -> String {
    let spec = format!("{}{{}}{}", r#"{"a":"#.repeat(levels - 1), "}".repeat(levels - 1));
    let manifest =
        std::fs::read_to_string(root().join("testdata/specs/valid/inline-specs-at-their-limits.yaml")).unwrap();
    let bootstrap = manifest.lines().position(|line| line.contains("spec: {a:")).unwrap();
    let lines = manifest.lines().enumerate();
    lines
        .map(|(index, line)| if index == bootstrap { format!("    spec: {spec}\n") } else { format!("{line}\n") })
        .collect()
}

#[test]
fn deep_inline_spec_is_reported() {
    assert!(lint(&["-f", "-"], &nested(32)).status.success());
    // Deeper than what a JSON parser accepts.
    let output = lint(&["-f", "-"], &nested(140));
    let expected = "policy      spec.bootstrapSpec.spec must be nested at most 32 levels deep, with at most 1000 \
                    entries in each list or object (found 140 levels)";
    assert!(text(&output).contains(expected), "{}", text(&output));
    // No parser recurses as deep as this.
    let blocks = |levels: usize| (0..levels).map(|level| " ".repeat(level) + "a:\n").collect::<String>();
    let both = format!("{}{}{}{}", blocks(250), " ".repeat(250), "[".repeat(250), "]".repeat(250));
    for deep in [nested(100_000), blocks(10_000), both] {
        let output = lint(&["-f", "-"], &deep);
        assert!(text(&output).contains("is nested more than 254 levels deep"), "{}", text(&output));
        assert_eq!(output.status.code(), Some(2));
    }
}
