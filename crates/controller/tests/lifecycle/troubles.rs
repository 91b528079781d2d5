//! What can be in the way of a machine: each has a name in the status, and is over by itself when its cause is.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::provider::kinds::K0S_WORKER_CONFIG;
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::wait::eventually;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, condition, told_once, machine_resource, never, testbed};

fn clusters(test: &TestNamespace) -> Api<DynamicObject> {
    test.dynamic_api(&ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster")))
}

async fn pause(test: &TestNamespace, paused: bool) {
    let patch = json!({ "spec": { "paused": paused } });
    clusters(test).patch("edge", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn references(reason: &str) -> (String, String) {
    ("False".to_owned(), reason.to_owned())
}

#[tokio::test]
async fn a_cluster_that_comes_later_is_joined() {
    let testbed = testbed().await;
    let test = testbed.namespace("late cluster").await;
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterNotFound"));
    assert_eq!(desk.children().await, (false, false, false));
    testbed.cluster(&test, "edge").await.unwrap();
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn a_cluster_that_is_being_deleted_gets_no_machine() {
    let (test, _controller) = a_cluster("leaving cluster").await;
    let hold = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    clusters(&test).patch("edge", &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    clusters(&test).delete("edge", &DeleteParams::default()).await.unwrap();
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterDeleting"));
    assert_eq!(desk.children().await, (false, false, false));
    let free = json!({ "metadata": { "finalizers": null } });
    clusters(&test).patch("edge", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    desk.until("the Cluster is gone", |it| condition(it, "ReferencesValid") == references("ClusterNotFound")).await;
    test.close().await;
}

#[tokio::test]
async fn a_paused_cluster_holds_up_what_is_graceful_and_nothing_else() {
    let (test, _controller) = a_cluster("paused").await;
    pause(&test, true).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Pending).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterPaused"));
    assert_eq!(desk.children().await, (false, false, false));
    pause(&test, false).await;
    desk.runs().await;

    pause(&test, true).await;
    desk.until("paused", |it| condition(it, "ReferencesValid") == references("ClusterPaused")).await;
    desk.reschedule(&never()).await;
    let held = desk.reaches(Phase::ShuttingDown).await;
    assert!(held.message.unwrap().contains("paused"));
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_none());
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_ne!(node.spec.unwrap().unschedulable, Some(true));

    // The kill switch asks nobody: the rest is done when Cluster API does its part again.
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    eventually("the delete is issued and the Node is cordoned", SOON, async || {
        let leaving = desk.machine().await.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        let node = desk.nodes().get(&desk.node_name()).await.unwrap();
        leaving && node.spec.unwrap().unschedulable == Some(true)
    })
    .await;
    pause(&test, false).await;
    desk.reaches(Phase::Terminated).await;
    assert_eq!(desk.children().await, (false, false, false));
    test.close().await;
}

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
    provider.behave_in(&test.name, Behaviour::default());
    let held_off = desk.until("held off", |it| it.message.as_ref().is_some_and(|it| it.contains("is made at"))).await;
    assert_eq!(held_off.phase, Some(Phase::Error));
    assert_eq!(desk.children().await, (false, false, false));
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

async fn somebody_elses(api: &Api<DynamicObject>, resource: &ApiResource, name: &str, data: Value) {
    api.create(&PostParams::default(), &DynamicObject::new(name, resource).data(data)).await.unwrap();
}

#[tokio::test]
async fn a_machine_of_the_name_that_is_somebody_elses_is_left_alone() {
    let (test, _controller) = a_cluster("taken machine").await;
    let reference = |kind: &str, group: &str| json!({ "apiGroup": group, "kind": kind, "name": "theirs" });
    let spec = json!({ "spec": {
        "clusterName": "edge",
        "bootstrap": { "configRef": reference("K0sWorkerConfig", "bootstrap.cluster.x-k8s.io") },
        "infrastructureRef": reference("RemoteMachine", "infrastructure.cluster.x-k8s.io"),
    } });
    let desk = Desk::new(&test, "desk-01");
    somebody_elses(&desk.machines(), &machine_resource(), "desk-01-machine", spec).await;
    desk.create(&always(), &json!({})).await;
    let taken = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&taken, "ReferencesValid"), references("NameConflict"));

    // Neither the kill switch nor a deletion takes what is not ours.
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    desk.reaches(Phase::Terminated).await;
    desk.edit(&json!({ "spec": { "killSwitch": false } })).await;
    desk.reaches(Phase::Error).await;
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_none());

    desk.machines().delete("desk-01-machine", &DeleteParams::default()).await.unwrap();
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn a_bootstrap_object_of_the_name_that_is_somebody_elses_is_left_alone() {
    let (test, _controller) = a_cluster("taken bootstrap").await;
    let resource = K0S_WORKER_CONFIG.api_resource();
    let configs = test.dynamic_api(&resource);
    somebody_elses(&configs, &resource, "desk-01-bootstrap", json!({ "spec": { "args": ["theirs"] } })).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let taken = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&taken, "ReferencesValid"), references("NameConflict"));
    desk.delete().await;
    desk.is_gone().await;
    let theirs = configs.get("desk-01-bootstrap").await.unwrap();
    assert_eq!(theirs.data["spec"]["args"], json!(["theirs"]));
    assert!(theirs.metadata.deletion_timestamp.is_none());
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
async fn what_the_status_is_made_to_say_gets_nobody_to_delete_anything() {
    let (test, _controller) = a_cluster("forged").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&never(), &json!({})).await;
    desk.reaches(Phase::Inactive).await;
    let resource = K0S_WORKER_CONFIG.api_resource();
    let configs = test.dynamic_api(&resource);
    somebody_elses(&configs, &resource, "precious", json!({ "spec": {} })).await;
    let theirs = json!({
        "apiVersion": K0S_WORKER_CONFIG.api_version(), "kind": "K0sWorkerConfig",
        "name": "precious", "namespace": test.name,
    });
    let forged = json!({ "status": { "bootstrapRef": theirs, "infrastructureRef": theirs } });
    desk.api().patch_status("desk-01", &PatchParams::default(), &Patch::Merge(&forged)).await.unwrap();
    desk.until("the forgery is gone", |it| it.bootstrap_ref.is_none()).await;
    desk.delete().await;
    desk.is_gone().await;
    configs.get("precious").await.unwrap();
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
async fn a_machine_that_somebody_else_takes_over_is_theirs_with_all_that_it_has() {
    let (test, _controller) = a_cluster("taken over").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    let before = desk.machine().await.unwrap().metadata.owner_references.unwrap();
    let mut owners = json!(before);
    owners.as_array_mut().unwrap().push(json!({
        "apiVersion": "example.com/v1", "kind": "Hoarder", "name": "theirs", "uid": "not-ours", "controller": true,
    }));
    // An owner that does not exist would be garbage; one that cannot be looked up is left alone.
    let take = json!({ "metadata": { "ownerReferences": owners } });
    desk.machines().patch("desk-01-machine", &PatchParams::default(), &Patch::Merge(&take)).await.unwrap();
    desk.until("told", |it| condition(it, "ReferencesValid") == references("NameConflict")).await;
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    desk.reaches(Phase::Terminated).await;
    assert_eq!(desk.children().await, (true, true, true));
    assert!(desk.infrastructure().await.unwrap().metadata.deletion_timestamp.is_none());

    let give_back = json!({ "metadata": { "ownerReferences": before } });
    desk.machines().patch("desk-01-machine", &PatchParams::default(), &Patch::Merge(&give_back)).await.unwrap();
    eventually("what is ours again is removed", SOON, async || desk.children().await == (false, false, false)).await;
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

#[tokio::test]
async fn a_finalizer_that_somebody_takes_off_comes_back() {
    let (test, _controller) = a_cluster("stripped").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    desk.edit(&json!({ "metadata": { "finalizers": null } })).await;
    eventually("the finalizer is back", SOON, async || {
        desk.get().await.metadata.finalizers.is_some_and(|it| it.contains(&fivespot_api::keys::FINALIZER.to_owned()))
    })
    .await;
    test.close().await;
}
