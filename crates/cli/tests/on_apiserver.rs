//! The plugin against a real API server, with the permissions of the caller.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fivespot_api::ScheduledMachine;
use fivespot_testbed::{TestNamespace, Testbed, shared_with_crd};
use kube::api::PostParams;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn plugin(kubeconfig: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-5spot"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .current_dir(root())
        .output()
        .unwrap()
}

fn admin(testbed: &Testbed) -> PathBuf {
    testbed.control_plane().kubeconfig_for("admin").unwrap()
}

async fn create(test: &TestNamespace, file: &str) {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let machine: ScheduledMachine = serde_saphyr::from_str(&text).unwrap();
    test.api().create(&PostParams::default(), &machine).await.unwrap();
}

/// Asserts exit code 1, and one line on standard error that contains `expected`.
fn assert_failed(output: &Output, expected: &str) {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn windows_equal_those_of_the_file() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("windows").await;
    create(&test, "examples/overnight.yaml").await;
    let span = ["--from", "2026-10-01", "--until", "2026-11-01", "-o", "json"];
    let stored = plugin(&admin(testbed), &[&["windows", "overnight-worker", "-n", &test.name], &span[..]].concat());
    let offline = plugin(&admin(testbed), &[&["windows", "-f", "examples/overnight.yaml"], &span[..]].concat());
    assert!(stored.status.success(), "{stored:?}");
    assert_eq!(stored.stdout, offline.stdout);
    assert!(stored.stdout.len() > 100, "{stored:?}");

    let timeline = plugin(&admin(testbed), &["timeline", "overnight-worker", "-n", &test.name]);
    assert!(String::from_utf8(timeline.stdout).unwrap().contains("overnight-worker (Europe/Berlin)"));
    test.close().await;
}

#[tokio::test]
async fn incomplete_stored_schedule_is_evaluated() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("incomplete schedule").await;
    create(&test, "testdata/specs/invalid/policy/days-without-hours.yaml").await;
    let span = ["--from", "2026-11-16", "--until", "2026-11-17", "-o", "json"];
    let output = plugin(&admin(testbed), &[&["windows", "days-without-hours", "-n", &test.name], &span[..]].concat());
    let windows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(windows, serde_json::json!([{ "open": "2026-11-16T00:00:00Z", "close": "2026-11-17T00:00:00Z" }]));
    test.close().await;
}

#[tokio::test]
async fn invalid_stored_schedule_is_reported() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("unknown time zone").await;
    create(&test, "testdata/specs/invalid/controller/timezone-unknown.yaml").await;
    let output = plugin(&admin(testbed), &["windows", "timezone-unknown", "-n", &test.name]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("spec.schedule.timezone") && error.contains("Mars/Olympus_Mons"), "{error}");
    test.close().await;
}

#[tokio::test]
async fn cluster_errors_are_one_line() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("cluster errors").await;
    assert_failed(
        &plugin(&admin(testbed), &["windows", "missing", "-n", &test.name]),
        &format!("ScheduledMachine \"missing\" not found in namespace \"{}\"", test.name),
    );
    let unprivileged = testbed.control_plane().kubeconfig_for("simulated-provider").unwrap();
    assert_failed(&plugin(&unprivileged, &["windows", "missing", "-n", &test.name]), "forbidden");

    let unreachable = testbed.control_plane().run_dir().path().join("unreachable.kubeconfig");
    let text = std::fs::read_to_string(admin(testbed)).unwrap();
    let server = text.split("https://").nth(1).unwrap().split(['"', '\n']).next().unwrap().to_owned();
    std::fs::write(&unreachable, text.replace(&server, "127.0.0.1:1")).unwrap();
    assert_failed(
        &plugin(&unreachable, &["windows", "missing"]),
        "cannot get ScheduledMachine \"missing\" from https://127.0.0.1:1",
    );
    test.close().await;
}

#[tokio::test]
async fn missing_crd_is_reported() {
    let bare = fivespot_testbed::ControlPlaneOptions::named("no-crd").without_controller_manager().without_scheduler();
    let plane = fivespot_testbed::ControlPlane::start(bare).await.unwrap();
    let kubeconfig = plane.kubeconfig_for("admin").unwrap();
    assert_failed(&plugin(&kubeconfig, &["windows", "some"]), "install deploy/crds/scheduledmachine.yaml first");
}
