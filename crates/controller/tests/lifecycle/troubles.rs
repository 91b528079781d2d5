//! What can be in the way of a machine: each has a name in the status, and is over by itself when its cause is.

use fivespot_api::Phase;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::wait::eventually;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{Desk, SOON, a_cluster, always, condition, never, references, testbed, told_once};

/// A kind that a provider brings when it is installed.
fn late_kind(kind: &str, plural: &str) -> CustomResourceDefinition {
    kind_with(kind, plural, &json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }))
}

fn kind_with(kind: &str, plural: &str, schema: &Value) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("{plural}.infrastructure.cluster.x-k8s.io"),
            "labels": { "cluster.x-k8s.io/v1beta1": "v1beta1" },
        },
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io",
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
async fn a_provider_that_is_installed_later_is_found_by_its_own_plural() {
    let (test, _controller) = a_cluster("late provider").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "infrastructureSpec": { "kind": "LateChassis" } })).await;
    let waiting = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("KindNotFound"));
    assert!(waiting.message.as_ref().unwrap().contains("LateChassis"), "{waiting:#?}");
    // Nothing is begun that cannot be finished.
    assert!(desk.bootstrap().await.is_none());
    told_once(&desk, &["CreationFailed"]).await;

    let kinds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    kinds.create(&PostParams::default(), &late_kind("LateChassis", "latechassis")).await.unwrap();
    let made = desk.reaches(Phase::Active).await;
    assert_eq!(condition(&made, "ReferencesValid"), ("True".into(), "Valid".into()));
    let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta1", "LateChassis");
    let chassis = test.dynamic_api(&ApiResource::from_gvk_with_plural(&kind, "latechassis"));
    chassis.get("desk-01-infra").await.unwrap();
    desk.delete().await;
    desk.is_gone().await;
    assert!(chassis.get_opt("desk-01-infra").await.unwrap().is_none());
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_failed_is_made_anew() {
    let (test, _controller) = a_cluster("failure").await;
    let provider = &testbed().await.fleet().await.provider;
    let fails = Step::Fail { reason: "NoPower".to_owned(), message: "the plug is out".to_owned() };
    provider.behave_in(&test.name, Behaviour { infrastructure: fails, ..Behaviour::default() });
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let failed = desk.until("failed", |it| it.message.as_ref().is_some_and(|it| it.contains("the plug is out"))).await;
    assert_eq!(failed.phase, Some(Phase::Error), "{failed:#?}");
    // Where Cluster API takes long to remove one, the next is made, and fails, before anybody has to wait.
    let held_off = desk.until("held off", |it| it.message.as_ref().is_some_and(|it| it.contains("is made at"))).await;
    assert_eq!(held_off.phase, Some(Phase::Error));
    assert_eq!(desk.children().await, (false, false, false));
    provider.behave_in(&test.name, Behaviour::default());
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_somebody_deletes_is_made_anew() {
    let (test, _controller) = a_cluster("vanished").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let first = desk.runs().await.machine_ref.unwrap().uid;
    desk.machines().delete("desk-01-machine", &DeleteParams::default()).await.unwrap();
    let second = desk
        .until("made anew", |it| {
            condition(it, "Ready").0 == "True" && it.machine_ref.as_ref().is_some_and(|it| it.uid != first)
        })
        .await;
    assert_eq!(second.phase, Some(Phase::Active));
    assert_eq!(second.machine_ref.unwrap().uid, desk.machine().await.unwrap().metadata.uid);
    test.close().await;
}

#[tokio::test]
async fn an_inline_spec_that_is_edited_applies_to_the_next_machine() {
    let (test, _controller) = a_cluster("edited").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "bootstrapSpec": { "spec": { "args": ["first"] } } })).await;
    let first = desk.runs().await.machine_ref.unwrap().uid;
    desk.edit(&json!({ "spec": { "bootstrapSpec": { "spec": { "args": ["second"] } } } })).await;
    let next = ("True".to_owned(), "ValidNextWindow".to_owned());
    let edited = desk.until("told", |it| condition(it, "ReferencesValid") == next).await;
    assert_eq!(edited.machine_ref.unwrap().uid, first);
    assert_eq!(desk.bootstrap().await.unwrap().data["spec"]["args"], json!(["first"]));

    desk.reschedule(&never()).await;
    desk.reaches(Phase::Inactive).await;
    desk.reschedule(&always()).await;
    let second = desk.runs().await;
    assert_eq!(condition(&second, "ReferencesValid"), ("True".into(), "Valid".into()));
    assert_eq!(desk.bootstrap().await.unwrap().data["spec"]["args"], json!(["second"]));
    test.close().await;
}

#[tokio::test]
async fn a_schedule_that_does_not_parse_is_a_status_until_it_is_mended() {
    let (test, controller) = a_cluster("invalid").await;
    controller.ready().await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&json!({ "cron": "0 9 * * *", "timezone": "Mars/Olympus" }), &json!({})).await;
    let told = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&told, "Ready"), ("False".into(), "InvalidSpec".into()));
    assert_eq!(condition(&told, "Scheduled"), ("False".into(), "InvalidSchedule".into()));
    assert!(told.message.as_ref().unwrap().contains("spec.schedule.timezone"), "{told:#?}");
    told_once(&desk, &["InvalidSpec"]).await;

    desk.edit(&json!({ "spec": { "schedule": { "cron": "* * * * *", "timezone": "UTC" } } })).await;
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn an_inline_spec_that_the_provider_refuses_is_told_and_one_that_is_mended_is_tried_at_once() {
    let (test, _controller) = a_cluster("refused").await;
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "required": ["rack"], "properties": { "rack": { "type": "integer" } } },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } });
    let kinds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    kinds.create(&PostParams::default(), &kind_with("StrictServer", "strictservers", &schema)).await.unwrap();
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "infrastructureSpec": { "kind": "StrictServer" } })).await;
    let refused = desk.until("refused", |it| it.message.as_ref().is_some_and(|it| it.contains("spec.rack"))).await;
    assert_eq!(refused.phase, Some(Phase::Error));
    desk.edit(&json!({ "spec": { "infrastructureSpec": { "spec": { "rack": 7 } } } })).await;
    let made = desk.reaches(Phase::Active).await;
    assert_eq!(made.observed_generation, desk.get().await.metadata.generation);
    desk.delete().await;
    desk.is_gone().await;
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_a_health_check_wants_remediated_is_made_anew() {
    let (test, _controller) = a_cluster("unhealthy").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let first = desk.runs().await.machine_ref.unwrap().uid;
    eventually("the Machine is marked", SOON, async || {
        let mut machine = desk.machine().await.ok_or("gone")?;
        let conditions = machine.data["status"]["conditions"].as_array_mut().ok_or("no conditions")?;
        conditions.retain(|it| it["type"] != "OwnerRemediated");
        conditions.push(json!({
            "type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation",
            "message": "the kubelet is silent", "lastTransitionTime": jiff::Timestamp::now().to_string(),
        }));
        let written = desk.machines().replace_status("desk-01-machine", &PostParams::default(), &machine).await;
        written.map(drop).map_err(|_| "somebody was faster")
    })
    .await;
    desk.until("told", |it| it.message.as_ref().is_some_and(|it| it.contains("the kubelet is silent"))).await;
    desk.until("made anew", |it| {
        condition(it, "Ready").0 == "True" && it.machine_ref.as_ref().is_some_and(|it| it.uid != first)
    })
    .await;
    test.close().await;
}
