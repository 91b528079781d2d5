//! The shipped CRD on a real API server: what the schema accepts and rejects, defaults, pruning, and what kubectl shows.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::{TestNamespace, Testbed, shared_with_crd};
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kubectl(testbed: &Testbed, arguments: &[&str]) -> Output {
    testbed.control_plane().kubectl().unwrap().args(arguments).current_dir(root()).output().unwrap()
}

/// The manifests of a folder, as (path, text, parsed manifest).
fn manifests(folder: &str) -> Vec<(String, String, Value)> {
    let mut files: Vec<_> = fs::read_dir(root().join(folder))
        .unwrap()
        .map(|it| it.unwrap().path())
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let value = serde_saphyr::from_str(&text).unwrap();
            (format!("{folder}/{}", path.file_name().unwrap().to_string_lossy()), text, value)
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!files.is_empty(), "{folder} is empty");
    files
}

/// Creates the object like kubectl, with strict field validation, and returns the stored object.
async fn create(test: &TestNamespace, manifest: &Value) -> Result<Value, Box<Status>> {
    let path =
        format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines?fieldValidation=Strict", test.name);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(manifest).unwrap()).unwrap();
    match test.client.request::<Value>(request).await {
        Ok(stored) => Ok(stored),
        Err(kube::Error::Api(status)) => Err(status),
        Err(other) => panic!("{other}"),
    }
}

/// Whether a path is inside a provider's spec, where the API server keeps `null`. It drops `null` elsewhere.
fn is_in_provider_spec(path: &str) -> bool {
    path.contains("Spec.spec")
}

/// Asserts that `stored` contains everything in `written`, unchanged. `stored` may contain defaults in addition.
fn assert_kept(written: &Value, stored: &Value, path: &str) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (key, value) in written.iter().filter(|(_, value)| !value.is_null() || is_in_provider_spec(path)) {
                let found = stored.get(key).unwrap_or_else(|| panic!("{path}.{key} was pruned"));
                assert_kept(value, found, &format!("{path}.{key}"));
            }
        }
        _ => assert_eq!(written, stored, "{path} was changed"),
    }
}

#[tokio::test]
async fn valid_manifests_round_trip() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("valid manifests").await;
    for (name, _, manifest) in manifests("testdata/specs/valid").into_iter().chain(manifests("examples")) {
        let stored = create(&test, &manifest).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        assert_kept(&manifest["spec"], &stored["spec"], &format!("{name}: spec"));

        // The Rust types lose nothing either.
        let typed: ScheduledMachine = serde_json::from_value(stored.clone()).unwrap();
        let reserialized = serde_json::to_value(&typed.spec).unwrap();
        assert_kept(&stored["spec"], &reserialized, &format!("{name}: typed spec"));
        assert_kept(&reserialized, &stored["spec"], &format!("{name}: stored spec"));
    }
    test.close().await;
}

#[tokio::test]
async fn schema_rejects_only_schema_violations() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("invalid manifests").await;
    for (name, text, manifest) in manifests("testdata/specs/invalid/schema") {
        let field = text.lines().find_map(|line| line.strip_prefix("# field: ")).unwrap();
        let rejection = create(&test, &manifest).await.expect_err(&name);
        assert!(rejection.message.contains(field), "{name}: {rejection}");
    }
    for folder in ["testdata/specs/invalid/policy", "testdata/specs/invalid/controller"] {
        for (name, _, manifest) in manifests(folder) {
            create(&test, &manifest).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        }
    }
    test.close().await;
}

#[tokio::test]
async fn defaults() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("defaults").await;
    let (_, _, manifest) = manifests("testdata/specs/valid").into_iter().find(|it| it.0.contains("minimal")).unwrap();
    let spec = create(&test, &manifest).await.unwrap()["spec"].clone();
    assert_eq!(spec["schedule"]["timezone"], "UTC");
    assert_eq!(spec["schedule"]["enabled"], true);
    assert_eq!(spec["priority"], 50);
    assert_eq!(spec["gracefulShutdownTimeout"], "5m");
    assert_eq!(spec["nodeDrainTimeout"], "5m");
    assert_eq!(spec["killSwitch"], false);
    assert_eq!(spec.get("killIfCommands"), None);
    assert_eq!(spec.get("nodeTaints"), None);
    test.close().await;
}

fn full_status() -> Value {
    let object = |kind: &str, name: &str| json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "namespace": "lab", "uid": "u-1" });
    json!({
        "phase": "Active",
        "message": "Draining Node n1: 3 of 12 pods remaining",
        "inSchedule": true,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "MachineRunning", "message": "Machine is healthy and running",
            "lastTransitionTime": "2026-11-16T14:00:00Z", "observedGeneration": 3,
        }],
        "machineRef": object("Machine", "a-machine"),
        "bootstrapRef": object("K0sWorkerConfig", "a-bootstrap"),
        "infrastructureRef": object("RemoteMachine", "a-infra"),
        "nodeRef": { "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-2" },
        "providerID": "remote-machine://n1",
        "appliedNodeTaints": [{ "key": "workload", "value": "batch", "effect": "NoSchedule" }],
        "lastScheduledTime": "2026-11-16T14:00:00Z",
        "nextActivation": "2099-11-17T14:00:00Z",
        "nextCleanup": "2099-11-16T23:00:00Z",
        "shutdownStartedAt": "2026-11-16T23:00:00Z",
        "reclaim": {
            "machineUID": "u-3", "reason": "process-match: java", "requestedAt": "2026-11-16T15:00:00Z",
            "scheduleDisabled": true, "inProgress": true, "count": 2,
        },
        "observedGeneration": 3,
    })
}

async fn patch_status(test: &TestNamespace, name: &str, status: &Value) -> Result<Value, Box<Status>> {
    let api = test.api::<ScheduledMachine>();
    let patch = Patch::Merge(json!({ "status": status }));
    match api.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(object) => Ok(serde_json::to_value(object.status).unwrap()),
        Err(kube::Error::Api(status)) => Err(status),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn status_fields_round_trip_and_fill_printer_columns() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("status").await;
    let (_, _, manifest) = manifests("examples").into_iter().find(|it| it.0.contains("business-hours")).unwrap();
    create(&test, &manifest).await.unwrap();
    let stored = patch_status(&test, "business-hours-worker", &full_status()).await.unwrap();
    assert_eq!(stored, full_status());

    let shown = kubectl(testbed, &["get", "sm", "-n", &test.name]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let (head, row) = shown.split_once('\n').unwrap();
    let columns: Vec<_> = head.split_whitespace().collect();
    assert_eq!(columns, ["NAME", "PHASE", "IN-SCHEDULE", "ENABLED", "NODE", "OPENS", "CLOSES", "CLUSTER", "AGE"]);
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        cells[..8],
        [
            "business-hours-worker",
            "Active",
            "true",
            "true",
            "n1",
            "2099-11-17T14:00:00Z",
            "2099-11-16T23:00:00Z",
            "production-cluster"
        ]
    );
    test.close().await;
}

#[tokio::test]
async fn status_accepts_only_known_phases() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("phases").await;
    let (_, _, manifest) = manifests("examples").into_iter().find(|it| it.0.contains("business-hours")).unwrap();
    create(&test, &manifest).await.unwrap();
    for phase in Phase::ALL {
        let stored = patch_status(&test, "business-hours-worker", &json!({ "phase": phase })).await.unwrap();
        assert_eq!(stored["phase"], phase.as_str());
    }
    let rejection = patch_status(&test, "business-hours-worker", &json!({ "phase": "Sleeping" })).await.unwrap_err();
    assert!(rejection.message.contains("status.phase"), "{rejection}");
    test.close().await;
}

#[tokio::test]
async fn kubectl_resolves_names_and_explains_fields() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("kubectl").await;
    let (_, _, manifest) = manifests("examples").into_iter().find(|it| it.0.contains("overnight")).unwrap();
    create(&test, &manifest).await.unwrap();
    for kinds in ["sm", "cluster-api", "scheduledmachine.5spot.finos.org"] {
        let listed = kubectl(testbed, &["get", kinds, "-n", &test.name, "-o", "name"]);
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(listed.trim(), "scheduledmachine.5spot.finos.org/overnight-worker", "{kinds}");
    }
    let explained = kubectl(testbed, &["explain", "sm.spec.schedule.overrides"]);
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("holidays"), "{explained}");
    test.close().await;
}
