//! The plugin against a real API server, with the caller's own permissions and none besides.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

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

/// Exit code 1, and one line that contains `words`.
fn assert_failed(output: &Output, words: &str) {
    let told = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(words), "{told}");
}

#[tokio::test]
async fn an_object_of_the_cluster_has_the_windows_of_its_file() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("windows").await;
    create(&test, "examples/overnight.yaml").await;
    let span = ["--from", "2026-10-01", "--until", "2026-11-01", "-o", "json"];
    let stored = plugin(&admin(testbed), &[&["windows", "overnight-worker", "-n", &test.name], &span[..]].concat());
    let offline = plugin(&admin(testbed), &[&["windows", "-f", "examples/overnight.yaml"], &span[..]].concat());
    assert!(stored.status.success(), "{stored:?}");
    assert_eq!(stored.stdout, offline.stdout);
    assert!(stored.stdout.len() > 100, "{stored:?}");

    let picture = plugin(&admin(testbed), &["timeline", "overnight-worker", "-n", &test.name]);
    assert!(String::from_utf8(picture.stdout).unwrap().contains("overnight-worker (Europe/Berlin)"));
    test.close().await;
}

#[tokio::test]
async fn an_object_from_before_the_policy_is_read_as_the_controller_reads_it() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("half a window").await;
    create(&test, "testdata/specs/invalid/policy/days-without-hours.yaml").await;
    let span = ["--from", "2026-11-16", "--until", "2026-11-17", "-o", "json"];
    let output = plugin(&admin(testbed), &[&["windows", "days-without-hours", "-n", &test.name], &span[..]].concat());
    let windows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(windows, serde_json::json!([{ "open": "2026-11-16T00:00:00Z", "close": "2026-11-17T00:00:00Z" }]));
    test.close().await;
}

#[tokio::test]
async fn a_stored_schedule_that_does_not_parse_is_told_with_its_field() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("bad zone").await;
    create(&test, "testdata/specs/invalid/controller/timezone-unknown.yaml").await;
    let output = plugin(&admin(testbed), &["windows", "timezone-unknown", "-n", &test.name]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("spec.schedule.timezone") && told.contains("Mars/Olympus_Mons"), "{told}");
    test.close().await;
}

#[tokio::test]
async fn what_the_cluster_cannot_answer_is_told_in_one_line() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("refusals").await;
    assert_failed(
        &plugin(&admin(testbed), &["windows", "nobody", "-n", &test.name]),
        &format!("no ScheduledMachine \"nobody\" in namespace \"{}\"", test.name),
    );
    let stranger = testbed.control_plane().kubeconfig_for("simulated-provider").unwrap();
    assert_failed(&plugin(&stranger, &["windows", "nobody", "-n", &test.name]), "forbidden");

    let unreachable = testbed.control_plane().run_dir().path().join("unreachable.kubeconfig");
    let text = std::fs::read_to_string(admin(testbed)).unwrap();
    let server = text.split("https://").nth(1).unwrap().split(['"', '\n']).next().unwrap().to_owned();
    std::fs::write(&unreachable, text.replace(&server, "127.0.0.1:1")).unwrap();
    assert_failed(&plugin(&unreachable, &["windows", "nobody"]), "asking https://127.0.0.1:1");
    test.close().await;
}

#[tokio::test]
async fn a_cluster_without_the_crd_is_told_to_install_it() {
    let bare = fivespot_testbed::ControlPlaneOptions::named("no-crd").without_controller_manager().without_scheduler();
    let plane = fivespot_testbed::ControlPlane::start(bare).await.unwrap();
    let kubeconfig = plane.kubeconfig_for("admin").unwrap();
    assert_failed(&plugin(&kubeconfig, &["windows", "some"]), "install deploy/crds/scheduledmachine.yaml first");
}
