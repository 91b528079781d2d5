//! Objects that are older than the policy: valid fields can be edited, and the object can be stopped and deleted.

use fivespot_validation::validate::EnforcedBy;
use serde_json::{Value, json};

use crate::env::{Example, Purpose, env, example, examples, offline_violations};
use crate::requests::{create, delete, dry_run_spec, get, merge, replace, replace_spec};

const FINALIZER: &str = "5spot.finos.org/scheduledmachine";

fn stored_before() -> Vec<Example> {
    examples("invalid/policy")
}

#[tokio::test]
async fn unrelated_fields_and_status_can_be_edited() {
    let test = env().await.old_objects(Purpose::Edit);
    let edits = [
        json!({ "metadata": { "labels": { "team": "research" }, "annotations": { "note": "edited" } } }),
        json!({ "spec": { "priority": 7 } }),
        json!({ "spec": { "schedule": { "enabled": false } } }),
        json!({ "spec": { "killSwitch": true } }),
        json!({ "spec": { "killIfCommands": ["java"] } }),
    ];
    for old in stored_before() {
        for edit in &edits {
            let response = merge(&test, &old.name, "", edit).await;
            assert_eq!(response.warnings, Vec::<String>::new(), "{}: {edit}", old.name);
            response.accepted(&format!("{}: {edit}", old.name));
        }
        merge(&test, &old.name, "/status", &json!({ "status": { "phase": "Error" } })).await.accepted(&old.name);
    }
}

/// Valid values for single fields that rules read.
fn valid_edits() -> Vec<Value> {
    let inline = |field: Value| [json!({ "bootstrapSpec": field }), json!({ "infrastructureSpec": field })];
    let mut edits = vec![
        json!({ "clusterName": "another" }),
        json!({ "gracefulShutdownTimeout": "7m" }),
        json!({ "nodeDrainTimeout": "7m" }),
        json!({ "schedule": { "timezone": "Europe/Paris" } }),
        json!({ "schedule": { "overrides": [{ "from": "2026-12-24", "until": "2026-12-27", "active": false }] } }),
        json!({ "machineTemplate": { "version": "v1.33.2" } }),
        json!({ "nodeTaints": [{ "key": "workload", "effect": "NoExecute" }] }),
    ];
    edits.extend(inline(json!({ "apiVersion": "k0smotron.io/v1beta1" })));
    edits.extend(inline(json!({ "kind": "SomeMachine" })));
    edits.extend(inline(json!({ "namespace": null })));
    edits.extend(inline(json!({ "spec": { "address": "192.168.1.101" } })));
    edits
}

/// So violations can be fixed one after the other.
#[tokio::test]
async fn valid_edit_of_one_field_is_accepted_despite_other_violations() {
    let test = env().await.old_objects(Purpose::DryRun);
    for old in stored_before() {
        // A merge into a spec that is too deep or too large leaves it so.
        let is_merged_into_violation = |edit: &Value| {
            ["bootstrap", "infrastructure"].iter().any(|object| {
                old.name.starts_with(&format!("{object}-spec-")) && edit[format!("{object}Spec")]["spec"].is_object()
            })
        };
        for edit in valid_edits().into_iter().filter(|edit| !is_merged_into_violation(edit)) {
            let what = format!("{}: {edit}", old.name);
            let response = merge(&test, &old.name, "?dryRun=All", &json!({ "spec": edit })).await;
            assert_eq!(response.warnings, Vec::<String>::new(), "{what}");
            response.accepted(&what);
        }
    }
}

#[tokio::test]
async fn new_violation_is_rejected_and_fix_accepted() {
    let test = env().await.old_objects(Purpose::DryRun);
    let valid = &example("valid", "every-field").manifest["spec"];
    let all = stored_before();
    // Each object gets the spec of the next one, which has another violation.
    for (old, other) in all.iter().zip(all.iter().cycle().skip(1)) {
        let stored = get(&test, &old.name).await.accepted(&old.name);
        let offline = offline_violations(&test, &other.manifest, EnforcedBy::Policy);
        let response = dry_run_spec(&test, &stored, &other.manifest["spec"]).await;
        response.rejected_for(&offline[0], &format!("{} as an edit of {}", other.name, old.name));
        dry_run_spec(&test, &stored, valid).await.accepted(&old.name);
    }
}

#[tokio::test]
async fn finalizer_can_be_removed_and_object_deleted() {
    let test = env().await.old_objects(Purpose::Delete);
    for old in stored_before() {
        merge(&test, &old.name, "", &json!({ "metadata": { "finalizers": [FINALIZER] } })).await.accepted(&old.name);
        delete(&test, &old.name).await.accepted(&old.name);
        let deleting = get(&test, &old.name).await.accepted(&old.name);
        assert!(deleting["metadata"]["deletionTimestamp"].is_string(), "{deleting:#}");
        merge(&test, &old.name, "", &json!({ "metadata": { "finalizers": null } })).await.accepted(&old.name);
        assert_eq!(get(&test, &old.name).await.rejected(&old.name).code, 404);
    }
}

#[tokio::test]
async fn deletion_timestamp_does_not_bypass_the_policy() {
    let test = env().await.testbed.namespace("deletion timestamp").await;
    let invalid = example("invalid/policy", "infrastructure-other-namespace");
    let rule = &offline_violations(&test, &invalid.manifest, EnforcedBy::Policy)[0];
    let with_deletion_timestamp = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        object["metadata"]["finalizers"] = json!([FINALIZER]);
        object
    };
    create(&test, &with_deletion_timestamp(&invalid.manifest))
        .await
        .rejected_for(rule, "a new object with a deletion timestamp");

    let valid = create(&test, &example("valid", "minimal").manifest).await.accepted("minimal");
    let mut edited = with_deletion_timestamp(&valid);
    edited["spec"] = invalid.manifest["spec"].clone();
    replace(&test, &edited).await.rejected("an edit that adds a deletion timestamp");

    // An object that is really being deleted is not validated: the controller creates nothing from it.
    let held = json!({ "metadata": { "finalizers": [FINALIZER] } });
    merge(&test, "minimal", "", &held).await.accepted("a finalizer");
    delete(&test, "minimal").await.accepted("a deletion");
    let deleting = get(&test, "minimal").await.accepted("held by its finalizer");
    replace_spec(&test, &deleting, &invalid.manifest["spec"])
        .await
        .accepted("an edit of an object that is being deleted");
    test.close().await;
}
