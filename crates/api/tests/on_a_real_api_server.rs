//! The CRD as it is shipped, on a real API server: what it takes, what it refuses, and that nothing is lost on the way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::{TestNamespace, Testbed, shared_with_crd};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kubectl(testbed: &Testbed, arguments: &[&str]) -> Output {
    testbed.control_plane().kubectl().unwrap().args(arguments).current_dir(root()).output().unwrap()
}

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

/// Creates the object as kubectl does, with unknown fields refused; what comes back is what is stored.
async fn create(test: &TestNamespace, manifest: &Value) -> Result<Value, String> {
    let path =
        format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines?fieldValidation=Strict", test.name);
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(manifest).unwrap()).unwrap();
    match test.client.request::<Value>(request).await {
        Ok(stored) => Ok(stored),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(other) => panic!("{other}"),
    }
}

/// Whether a path is inside a provider's spec, whose every `null` is kept. Elsewhere a `null` is the same as nothing.
fn is_providers(path: &str) -> bool {
    path.contains("Spec.spec")
}

/// Whether everything in `written` is in `stored`, unchanged; `stored` may have more, as defaults are filled in.
fn assert_kept(written: &Value, stored: &Value, path: &str) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (key, value) in written.iter().filter(|(_, value)| !value.is_null() || is_providers(path)) {
                let found = stored.get(key).unwrap_or_else(|| panic!("{path}.{key} was pruned"));
                assert_kept(value, found, &format!("{path}.{key}"));
            }
        }
        _ => assert_eq!(written, stored, "{path} was changed"),
    }
}

#[tokio::test]
async fn every_valid_manifest_is_accepted_and_read_back_unchanged() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("valid manifests").await;
    for (name, _, manifest) in manifests("testdata/specs/valid").into_iter().chain(manifests("examples")) {
        let stored = create(&test, &manifest).await.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_kept(&manifest["spec"], &stored["spec"], &format!("{name}: spec"));

        // Our types lose nothing either: what they read is what they write.
        let typed: ScheduledMachine = serde_json::from_value(stored.clone()).unwrap();
        let again = serde_json::to_value(&typed.spec).unwrap();
        assert_kept(&stored["spec"], &again, &format!("{name}: typed spec"));
        assert_kept(&again, &stored["spec"], &format!("{name}: stored spec"));
    }
    test.close().await;
}

#[tokio::test]
async fn the_schema_refuses_exactly_its_own_folder_and_names_the_field() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("invalid manifests").await;
    for (name, text, manifest) in manifests("testdata/specs/invalid/schema") {
        let field = text.lines().find_map(|line| line.strip_prefix("# field: ")).unwrap();
        let refusal = create(&test, &manifest).await.expect_err(&name);
        assert!(refusal.contains(field), "{name}: {refusal}");
    }
    for folder in ["testdata/specs/invalid/policy", "testdata/specs/invalid/controller"] {
        for (name, _, manifest) in manifests(folder) {
            create(&test, &manifest).await.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        }
    }
    test.close().await;
}

#[tokio::test]
async fn defaults_are_those_of_the_documents() {
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
        "message": "draining: 3 of 12 pods left",
        "inSchedule": true,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "MachineRunning", "message": "it runs",
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
            "scheduleDisabled": true, "count": 2,
        },
        "observedGeneration": 3,
    })
}

async fn write_status(test: &TestNamespace, name: &str, status: &Value) -> Result<Value, String> {
    let api = test.api::<ScheduledMachine>();
    let patch = Patch::Merge(json!({ "status": status }));
    match api.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(object) => Ok(serde_json::to_value(object.status).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn every_field_of_the_status_is_kept_and_shown() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("status").await;
    let (_, _, manifest) = manifests("examples").into_iter().find(|it| it.0.contains("business-hours")).unwrap();
    create(&test, &manifest).await.unwrap();
    let stored = write_status(&test, "business-hours-worker", &full_status()).await.unwrap();
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
async fn the_status_takes_every_phase_and_no_other() {
    let testbed = shared_with_crd().await;
    let test = testbed.namespace("phases").await;
    let (_, _, manifest) = manifests("examples").into_iter().find(|it| it.0.contains("business-hours")).unwrap();
    create(&test, &manifest).await.unwrap();
    for phase in Phase::ALL {
        let stored = write_status(&test, "business-hours-worker", &json!({ "phase": phase })).await.unwrap();
        assert_eq!(stored["phase"], phase.as_str());
    }
    let refusal = write_status(&test, "business-hours-worker", &json!({ "phase": "Sleeping" })).await.unwrap_err();
    assert!(refusal.contains("status.phase"), "{refusal}");
    test.close().await;
}

#[tokio::test]
async fn kubectl_knows_the_kind_by_its_short_name_and_its_category_and_explains_its_fields() {
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
