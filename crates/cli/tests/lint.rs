//! `kubectl 5spot lint` over the whole corpus, and over what else people hand to it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

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

fn verdicts(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn told(output: &Output) -> String {
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

/// Every file at once, each with `-f`.
fn lint_all(files: &[String]) -> Output {
    let mut arguments = vec!["-o", "json"];
    arguments.extend(files.iter().flat_map(|it| ["-f", it]));
    lint(&arguments, "")
}

#[test]
fn every_good_example_is_accepted() {
    let files = corpus("valid");
    let output = lint_all(&files);
    assert!(output.status.success(), "{}", told(&output));
    let verdicts = verdicts(&output);
    assert_eq!(verdicts.len(), files.len());
    for verdict in verdicts {
        assert_eq!((&verdict["accepted"], &verdict["findings"]), (&json!(true), &json!([])), "{verdict:#}");
    }
}

#[test]
fn every_bad_example_is_judged_by_the_one_whose_folder_it_is_in() {
    for (folder, accepted) in [("schema", false), ("policy", false), ("controller", true)] {
        let files = corpus(&format!("invalid/{folder}"));
        let output = lint_all(&files);
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        let verdicts = verdicts(&output);
        assert_eq!(verdicts.len(), files.len());
        for (file, verdict) in files.iter().zip(verdicts) {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            let field = text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
            assert_eq!((&verdict["file"], &verdict["accepted"]), (&json!(file), &json!(accepted)), "{verdict:#}");
            let findings = verdict["findings"].as_array().unwrap();
            assert!(findings.iter().all(|it| it["judge"] == folder), "{verdict:#}");
            assert!(findings.iter().any(|it| it["field"].as_str().unwrap().starts_with(field)), "{verdict:#}");
        }
    }
}

/// Four documents: something else, one that is right, one that is wrong in two ways, and one of a stale group.
fn four() -> String {
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
    let ours = "5spot.finos.org/v1alpha1";
    [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: unrelated}\n".to_owned(),
        machine(ours, "right", "c", "UTC"),
        machine(ours, "wrong", "", "Mars/Olympus"),
        machine("capi.5spot.io/v1alpha1", "stale", "c", "UTC"),
    ]
    .concat()
}

#[test]
fn several_documents_are_read_from_standard_input_and_all_is_told() {
    let output = lint(&["-f", "-", "-n", "lab"], &four());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        told(&output),
        "standard input: lab/right: accepted
standard input: lab/wrong: refused
  policy      spec.clusterName must not be empty
  controller  spec.schedule.timezone must be an IANA time zone (e.g. 'America/New_York', 'UTC') (timezone: \
         \"Mars/Olympus\": no such time zone: use an IANA name such as Europe/Paris, or UTC)
standard input: lab/stale: refused
  schema      is a ScheduledMachine of capi.5spot.io/v1alpha1, not a ScheduledMachine of 5spot.finos.org/v1alpha1
error: 2 of 3 ScheduledMachines cannot be used
"
    );
}

#[test]
fn an_object_that_names_no_namespace_is_judged_in_the_one_that_is_asked_for() {
    let output = lint(&["-f", "-", "-o", "json"], &four());
    let right = &verdicts(&output)[0];
    assert_eq!((&right["namespace"], &right["accepted"]), (&json!("default"), &json!(false)), "{right:#}");
    assert_eq!(right["findings"][0]["field"], "spec.infrastructureSpec.namespace");
}

#[test]
fn what_cannot_be_judged_is_one_line_and_code_2() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&[], "", "--filename"),
        (&["-f", "nowhere.yaml"], "", "nowhere.yaml: No such file"),
        (&["-f", "deploy/crds/scheduledmachine.yaml"], "", "holds no ScheduledMachine"),
        (&["-f", "-"], "", "standard input: holds no ScheduledMachine"),
        (&["-f", "-"], "a: [", "is not YAML"),
        (&["-f", "-", "-n", "a/b"], "", "cannot be the name of a namespace"),
    ];
    for (arguments, input, words) in cases {
        let output = lint(arguments, input);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_terminal_is_not_told_what_to_do_by_a_manifest() {
    let manifest = "{apiVersion: 5spot.finos.org/v1alpha1, kind: ScheduledMachine, metadata: {name: \"a\\e[2Jb\"}}";
    let output = lint(&["-f", "-"], manifest);
    assert!(told(&output).contains("a\\u{1b}[2Jb"), "{}", told(&output));
    assert!(!told(&output).contains('\u{1b}'));
}

#[test]
fn whatever_metadata_and_spec_are_there_is_a_verdict() {
    let odd = ["metadata: null", "metadata: a", "metadata: {name: 5}", "metadata: {name: a, namespace: 5}", "spec: []"];
    for fields in odd {
        let manifest = format!("apiVersion: 5spot.finos.org/v1alpha1\nkind: ScheduledMachine\n{fields}\n");
        let output = lint(&["-f", "-", "-o", "json"], &manifest);
        assert_eq!(output.status.code(), Some(1), "{fields}: {}", told(&output));
        assert_eq!(verdicts(&output)[0]["accepted"], false, "{fields}");
    }
}
