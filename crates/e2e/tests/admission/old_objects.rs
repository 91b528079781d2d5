//! Objects that are older than the policy: they can be edited where they are not at fault, be stopped, and go.

use fivespot_validation::validate::EnforcedBy;
use serde_json::{Value, json};

use crate::installed::{Example, Fate, example, examples, installed, told_offline};
use crate::requests::{create, delete, dry_run_spec, get, merge, replace, replace_spec};

const FINALIZER: &str = "5spot.finos.org/scheduledmachine";

fn stored_before() -> Vec<Example> {
    examples("invalid/policy")
}

#[tokio::test]
async fn an_old_object_can_be_edited_elsewhere_disabled_killed_and_told_of() {
    let test = installed().await.old(Fate::Edited);
    let edits = [
        json!({ "metadata": { "labels": { "team": "research" }, "annotations": { "why": "it is old" } } }),
        json!({ "spec": { "priority": 7 } }),
        json!({ "spec": { "schedule": { "enabled": false } } }),
        json!({ "spec": { "killSwitch": true } }),
        json!({ "spec": { "killIfCommands": ["java"] } }),
    ];
    for old in stored_before() {
        for edit in &edits {
            let answer = merge(&test, &old.name, "", edit).await;
            assert_eq!(answer.warnings, Vec::<String>::new(), "{}: {edit}", old.name);
            answer.accepted(&format!("{}: {edit}", old.name));
        }
        merge(&test, &old.name, "/status", &json!({ "status": { "phase": "Error" } })).await.accepted(&old.name);
    }
}

/// Good values for fields that rules read, each alone.
fn good_edits() -> Vec<Value> {
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

/// Even where much else is wrong: one thing after the other can be mended.
#[tokio::test]
async fn a_good_edit_of_one_field_is_accepted_whatever_is_wrong_with_the_others() {
    let test = installed().await.old(Fate::Worsened);
    for old in stored_before() {
        for edit in good_edits() {
            let what = format!("{}: {edit}", old.name);
            let answer = merge(&test, &old.name, "?dryRun=All", &json!({ "spec": edit })).await;
            assert_eq!(answer.warnings, Vec::<String>::new(), "{what}");
            answer.accepted(&what);
        }
    }
}

#[tokio::test]
async fn an_old_object_cannot_be_made_worse_and_can_be_mended() {
    let test = installed().await.old(Fate::Worsened);
    let good = &example("valid", "every-field").manifest["spec"];
    let all = stored_before();
    // Each becomes what the next one is, which is wrong in another way.
    for (old, worse) in all.iter().zip(all.iter().cycle().skip(1)) {
        let stored = get(&test, &old.name).await.accepted(&old.name);
        let told = told_offline(&test, &worse.manifest, EnforcedBy::Policy);
        let answer = dry_run_spec(&test, &stored, &worse.manifest["spec"]).await;
        answer.refused_for(&told[0], &format!("{} as an edit of {}", worse.name, old.name));
        dry_run_spec(&test, &stored, good).await.accepted(&old.name);
    }
}

#[tokio::test]
async fn an_old_object_can_lose_its_finalizer_and_go() {
    let test = installed().await.old(Fate::Deleted);
    for old in stored_before() {
        merge(&test, &old.name, "", &json!({ "metadata": { "finalizers": [FINALIZER] } })).await.accepted(&old.name);
        delete(&test, &old.name).await.accepted(&old.name);
        let leaving = get(&test, &old.name).await.accepted(&old.name);
        assert!(leaving["metadata"]["deletionTimestamp"].is_string(), "{leaving:#}");
        merge(&test, &old.name, "", &json!({ "metadata": { "finalizers": null } })).await.accepted(&old.name);
        assert_eq!(get(&test, &old.name).await.refused(&old.name).code, 404);
    }
}

#[tokio::test]
async fn nobody_gets_past_the_policy_by_calling_an_object_deleted() {
    let test = installed().await.testbed.namespace("called deleted").await;
    let bad = example("invalid/policy", "infrastructure-other-namespace");
    let rule = &told_offline(&test, &bad.manifest, EnforcedBy::Policy)[0];
    let called_deleted = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        object["metadata"]["finalizers"] = json!([FINALIZER]);
        object
    };
    create(&test, &called_deleted(&bad.manifest)).await.refused_for(rule, "a new object that calls itself deleted");

    let good = create(&test, &example("valid", "minimal").manifest).await.accepted("minimal");
    let mut edited = called_deleted(&good);
    edited["spec"] = bad.manifest["spec"].clone();
    replace(&test, &edited).await.refused("an edit that calls its object deleted");

    // One that is really being deleted is not judged: nothing is made from it any more.
    let held = json!({ "metadata": { "finalizers": [FINALIZER] } });
    merge(&test, "minimal", "", &held).await.accepted("a finalizer");
    delete(&test, "minimal").await.accepted("a deletion");
    let leaving = get(&test, "minimal").await.accepted("held by its finalizer");
    replace_spec(&test, &leaving, &bad.manifest["spec"]).await.accepted("an edit of what is leaving");
    test.close().await;
}
