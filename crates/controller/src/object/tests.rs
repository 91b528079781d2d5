use fivespot_api::keys;
use kube::ResourceExt as _;
use kube::core::{ObjectList, WatchEvent};
use serde_json::{Value, json};

use super::*;

fn object() -> Value {
    json!({
        "apiVersion": "5spot.finos.org/v1alpha1",
        "kind": "ScheduledMachine",
        "metadata": { "name": "desk", "namespace": "team", "uid": "u1", "resourceVersion": "7", "generation": 2 },
        "spec": {
            "schedule": { "cron": "* * * * *", "timezone": "UTC", "enabled": false },
            "clusterName": "edge",
            "bootstrapSpec": { "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "Boot", "spec": { "a": 1 } },
            "infrastructureSpec": { "apiVersion": "k0smotron.io/v1beta1", "kind": "Infra", "spec": { "b": [2] } },
        },
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut object = object();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[name] = value;
    object
}

fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }))
}

fn decode(object: &Value) -> ReceivedObject {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn errors(object: &Value) -> String {
    decode(object).stored.validate("team").unwrap_err().to_string()
}

#[test]
fn valid_object_keeps_everything_but_inline_specs() {
    let received = decode(&object());
    let stored = &received.stored;
    assert_eq!((stored.name_any().as_str(), stored.namespace().as_deref()), ("desk", Some("team")));
    assert_eq!((stored.metadata.generation, stored.resource_version().as_deref()), (Some(2), Some("7")));
    assert!(stored.unreadable.is_empty() && stored.unreadable_status.is_empty());
    assert!(stored.spec.bootstrap_spec.spec.is_empty() && stored.spec.infrastructure_spec.spec.is_empty());
    let inline = received.inline_specs.unwrap();
    assert_eq!((inline.bootstrap.get(), inline.infrastructure.get()), (r#"{"a":1}"#, r#"{"b":[2]}"#));
    let typed: ScheduledMachine = serde_json::from_value(object()).unwrap();
    assert_eq!(stored.inline, InlineSpecSummaries::of(&typed.spec));
    let mut spec = typed.spec;
    spec.bootstrap_spec.spec.clear();
    spec.infrastructure_spec.spec.clear();
    assert_eq!(stored.spec, spec);
    stored.validate("team").unwrap();
}

/// The types through which kube decodes lists and watches.
#[test]
fn deep_object_fails_neither_list_nor_watch() {
    let mut deep = with("/spec/bootstrapSpec/spec", nested(500));
    deep["metadata"]["managedFields"] = json!([{ "fieldsV1": nested(500) }]);
    let list = format!(r#"{{"kind":"L","apiVersion":"v1","metadata":{{}},"items":[{deep},{}]}}"#, object());
    let list: ObjectList<StoredObject> = serde_json::from_str(&list).unwrap();
    let valid = list.items.iter().map(|object| object.validate("team").is_ok());
    assert_eq!(valid.collect::<Vec<_>>(), [false, true]);
    let event = format!(r#"{{"type":"MODIFIED","object":{deep}}}"#);
    let event: WatchEvent<StoredObject> = serde_json::from_str(&event).unwrap();
    assert!(matches!(event, WatchEvent::Modified(_)));
    assert!(decode(&deep).inline_specs.is_none());
}

#[test]
fn unreadable_field_is_named_with_cause() {
    let deep = errors(&with("/spec/bootstrapSpec/spec", nested(33)));
    assert_eq!(
        deep,
        "spec.bootstrapSpec.spec must be nested at most 32 levels deep, with at most 1000 entries in each list or object (found 33 levels)"
    );
    let large = errors(&with("/spec/infrastructureSpec/spec", json!({ "a": "x".repeat(1_000_000) })));
    assert_eq!(large, "spec.infrastructureSpec.spec must be at most 64 KiB of JSON (found 1000008 bytes)");
    let template = json!({ "annotations": { "example.com/a": "x".repeat(200_000) } });
    let template = errors(&with("/spec/machineTemplate", template));
    assert_eq!(
        template,
        "spec.machineTemplate cannot be read: correct or remove it (with its 200036 bytes, the fields read so far exceed \
         128 KiB)"
    );
    let name = errors(&with("/spec/clusterName", json!(7)));
    assert!(name.starts_with("spec.clusterName cannot be read: correct or remove it (invalid type: "), "{name}");
    let spec = errors(&with("/spec", json!([])));
    assert!(spec.starts_with("spec cannot be read: correct or remove it ("), "{spec}");
}

#[test]
fn switches_act_although_other_fields_cannot_be_read() {
    let mut object = with("/spec/schedule/overrides", json!("none"));
    object["spec"]["killSwitch"] = json!(true);
    object["spec"]["machineTemplate"] = json!({ "labels": "x".repeat(200_000) });
    let requested = decode(&object).stored.requested();
    assert!(requested.kill_switch && !requested.enabled);
    let message = errors(&object);
    assert!(message.contains("spec.schedule.overrides") && message.contains("spec.machineTemplate"), "{message}");
}

#[test]
fn unreadable_status_field_counts_as_absent() {
    let status = json!({ "phase": "Active", "nextCleanup": "2026-01-01T00:00:00+99:99", "message": "ok" });
    let stored = decode(&with("/status", status)).stored;
    assert_eq!(
        (stored.phase(), stored.unreadable_status.as_slice()),
        (Some(Phase::Active), &["nextCleanup".to_owned()][..])
    );
    assert_eq!(stored.status().message.as_deref(), Some("ok"));
    assert_eq!(stored.status().next_cleanup, None);
}

#[test]
fn metadata_is_bounded_and_complete_finalizers_are_known() {
    let mut metadata = object()["metadata"].clone();
    metadata["annotations"] = json!({ "a": "x".repeat(200_000) });
    metadata["deletionTimestamp"] = json!("never");
    metadata["finalizers"] = json!([keys::FINALIZER, "example.com/other"]);
    let received = decode(&with("/metadata", metadata.clone()));
    assert!(received.stored.metadata.annotations.is_none() && received.stored.requested().deleted);
    assert!(received.stored.has_all_finalizers);
    assert_eq!(received.stored.finalizers(), received.finalizers);

    let many: Vec<String> =
        (0..1000).map(|it| format!("example.com/{it}")).chain([keys::FINALIZER.to_owned()]).collect();
    metadata["finalizers"] = json!(many);
    let received = decode(&with("/metadata", metadata));
    assert_eq!(received.finalizers, many);
    assert!(!received.stored.has_all_finalizers);
    assert_eq!(received.stored.finalizers(), [keys::FINALIZER, "example.com/0"]);
}

#[test]
fn recorded_intent_counts_until_the_status_includes_it() {
    let text = "3 bootstrap.cluster.x-k8s.io/v1beta1/Boot k0smotron.io/v1beta1/Infra";
    let stored = |annotations: Value, status: Value| {
        let mut object = with("/metadata/annotations", annotations);
        object["status"] = status;
        decode(&object).stored
    };
    let recorded = |value: Value| json!({ "example.com/a": "b", keys::CHILDREN_ANNOTATION: value });
    let intent = stored(recorded(json!(text)), json!({ "observedIntent": 2 })).unobserved_intent.unwrap();
    assert_eq!((intent.annotation().as_str(), intent.refs.bootstrap.name.as_str()), (text, "desk-bootstrap"));
    assert!(stored(recorded(json!(text)), json!({ "observedIntent": 3 })).unobserved_intent.is_none());
    // A number that cannot be read counts as absent, and so does a forged annotation.
    assert!(stored(recorded(json!(text)), json!({ "observedIntent": "3" })).unobserved_intent.is_some());
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let forged =
        [json!("nonsense"), json!("x".repeat(1_000_000)), json!(7), json!(text.replace(' ', "\n")), json!(deep)];
    for annotations in forged.into_iter().map(recorded).chain([json!("none"), json!([1]), json!(null)]) {
        let stored = stored(annotations, json!({}));
        assert!(stored.unobserved_intent.is_none() && stored.name_any() == "desk");
    }
}

#[test]
fn reason_for_not_being_ready_is_one_that_exists() {
    let not_ready = |status: &str, reason: &str| {
        let condition = json!({
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let object = json!({ "metadata": { "name": "desk" }, "status": { "conditions": [condition] } });
        let received: ReceivedObject = serde_json::from_value(object).unwrap();
        received.stored.not_ready()
    };
    assert_eq!(not_ready("False", "Provisioning"), Some(Ready::Provisioning));
    // Users may be able to write the status, and the reason becomes the label of a metric.
    for (status, reason) in [("True", "MachineRunning"), ("False", "Forged"), ("True", "Provisioning")] {
        assert_eq!(not_ready(status, reason), None, "{status} {reason}");
    }
}
