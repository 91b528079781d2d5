//! Specs that are invalid, rejected by the provider, or edited.

use fivespot_api::Phase;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{always, assert_events_once, condition, message_contains, never, scheduled_machine, setup};

const GROUP: &str = "infrastructure.cluster.x-k8s.io";

fn infrastructure_crd(kind: &str, plural: &str, schema: &Value) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "labels": { "cluster.x-k8s.io/v1beta1": "v1beta1" },
        },
        "spec": {
            "group": GROUP,
            "names": { "kind": kind, "plural": plural },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn provider_kind_installed_later_is_found_by_its_plural() {
    let (ns, _controller) = setup("late-provider").await;
    let sm = scheduled_machine(&ns, "desk-01").infrastructure_kind("LateChassis").create().await;
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "KindNotFound"));
    assert!(message_contains(&status, "LateChassis"), "{status:#?}");
    // The controller creates no child before it knows the kinds of all of them.
    assert!(sm.bootstrap().await.is_none());
    assert_events_once(&sm, &["CreationFailed"]).await;

    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = infrastructure_crd("LateChassis", "latechassis", &schema);
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let active = sm.wait_for_phase(Phase::Active).await;
    assert_eq!(condition(&active, "ReferencesValid"), ("True", "Valid"));
    let gvk = GroupVersionKind::gvk(GROUP, "v1beta1", "LateChassis");
    let chassis = ns.dynamic_api(&ApiResource::from_gvk_with_plural(&gvk, "latechassis"));
    chassis.get("desk-01-infra").await.unwrap();
    sm.delete().await;
    sm.wait_until_deleted().await;
    assert!(chassis.get_opt("desk-01-infra").await.unwrap().is_none());
    ns.close().await;
}

#[tokio::test]
async fn edited_inline_spec_applies_to_next_machine() {
    let (ns, _controller) = setup("edited-spec").await;
    let inline = |arg: &str| json!({ "bootstrapSpec": { "spec": { "args": [arg] } } });
    let sm = scheduled_machine(&ns, "desk-01").spec(&inline("first")).create().await;
    let first = sm.wait_until_running().await.machine_ref.unwrap().uid;
    sm.patch(&json!({ "spec": inline("second") })).await;
    let edited = sm.wait_for_condition("ReferencesValid", ("True", "ValidNextWindow")).await;
    assert_eq!(edited.machine_ref.unwrap().uid, first);
    assert_eq!(sm.bootstrap().await.unwrap().data["spec"]["args"], json!(["first"]));

    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    sm.set_schedule(&always()).await;
    let second = sm.wait_until_running().await;
    assert_eq!(condition(&second, "ReferencesValid"), ("True", "Valid"));
    assert_eq!(sm.bootstrap().await.unwrap().data["spec"]["args"], json!(["second"]));
    ns.close().await;
}

#[tokio::test]
async fn invalid_schedule_is_reported_until_fixed() {
    let (ns, controller) = setup("invalid-schedule").await;
    controller.wait_until_ready().await;
    let invalid = json!({ "cron": "0 9 * * *", "timezone": "Mars/Olympus" });
    let sm = scheduled_machine(&ns, "desk-01").schedule(invalid).create().await;
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "Ready"), ("False", "InvalidSpec"));
    assert_eq!(condition(&status, "Scheduled"), ("False", "InvalidSchedule"));
    assert!(message_contains(&status, "spec.schedule.timezone"), "{status:#?}");
    assert_events_once(&sm, &["InvalidSpec"]).await;

    sm.patch(&json!({ "spec": { "schedule": { "cron": "* * * * *", "timezone": "UTC" } } })).await;
    sm.wait_until_running().await;
    ns.close().await;
}

#[tokio::test]
async fn rejected_inline_spec_is_retried_after_edit() {
    let (ns, _controller) = setup("rejected-spec").await;
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "required": ["rack"], "properties": { "rack": { "type": "integer" } } },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } });
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let crd = infrastructure_crd("StrictServer", "strictservers", &schema);
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let sm = scheduled_machine(&ns, "desk-01").infrastructure_kind("StrictServer").create().await;
    let rejected = sm.wait_for_message("spec.rack").await;
    assert_eq!(rejected.phase, Some(Phase::Error));
    sm.patch(&json!({ "spec": { "infrastructureSpec": { "spec": { "rack": 7 } } } })).await;
    let active = sm.wait_for_phase(Phase::Active).await;
    assert_eq!(active.observed_generation, sm.get().await.metadata.generation);
    sm.delete().await;
    sm.wait_until_deleted().await;
    ns.close().await;
}
