//! Edits by other clients to what the controller writes.

use fivespot_api::{Phase, keys};
use fivespot_testbed::provider::kinds::K0S_WORKER_CONFIG;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

use crate::fixtures::{CONTROLLER_USER, Children, never, scheduled_machine, setup, testbed, wait_for};

#[tokio::test]
async fn forged_status_refs_delete_nothing() {
    let (ns, _controller) = setup("forged-status").await;
    let sm = scheduled_machine(&ns, "desk-01").schedule(never()).create().await;
    sm.wait_for_phase(Phase::Inactive).await;
    let resource = K0S_WORKER_CONFIG.api_resource();
    let configs = ns.dynamic_api(&resource);
    let foreign = DynamicObject::new("foreign", &resource).data(json!({ "spec": {} }));
    configs.create(&PostParams::default(), &foreign).await.unwrap();
    let reference = json!({
        "apiVersion": K0S_WORKER_CONFIG.api_version(), "kind": "K0sWorkerConfig",
        "name": "foreign", "namespace": ns.name,
    });
    sm.patch_status(&json!({ "status": { "bootstrapRef": reference, "infrastructureRef": reference } })).await;
    sm.wait_until("the forged reference is removed", |status| status.bootstrap_ref.is_none()).await;
    sm.delete().await;
    sm.wait_until_deleted().await;
    configs.get("foreign").await.unwrap();
    ns.close().await;
}

#[tokio::test]
async fn forged_intent_deletes_nothing_and_counts_once() {
    let testbed = testbed().await;
    let (ns, _controller) = setup("forged-intent").await;
    let sm = scheduled_machine(&ns, "desk-01").schedule(never()).create().await;
    sm.wait_for_phase(Phase::Inactive).await;
    let resource = K0S_WORKER_CONFIG.api_resource();
    let configs = ns.dynamic_api(&resource);
    let foreign = DynamicObject::new("desk-01-bootstrap", &resource).data(json!({ "spec": {} }));
    configs.create(&PostParams::default(), &foreign).await.unwrap();
    let forge = async |intent: &str| {
        sm.patch(&json!({ "metadata": { "annotations": { keys::CHILDREN_ANNOTATION: intent } } })).await;
    };
    let kinds =
        "bootstrap.cluster.x-k8s.io/v1beta1/K0sWorkerConfig infrastructure.cluster.x-k8s.io/v1beta1/RemoteMachine";
    forge(&format!("7 {kinds}")).await;
    let status = sm.wait_until("the intent is observed", |it| it.observed_intent == Some(7)).await;
    assert!(status.phase == Some(Phase::Inactive) && status.bootstrap_ref.is_none(), "{status:#?}");

    // What is observed, and what the controller cannot have written, makes it read no child.
    let mark = testbed.audit().mark();
    forge(&"x".repeat(200_000)).await;
    forge(&kinds.replace("v1beta1/K0s", "v1beta1/namespaces/victim/K0s")).await;
    forge(&format!("7 {kinds}")).await;
    // An edit that is reported shows that the controller has seen the others.
    sm.set_enabled(false).await;
    sm.wait_for_phase(Phase::Disabled).await;
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name);
    let requests = requests.filter(|it| it.group != "events.k8s.io" && it.resource != "scheduledmachines");
    let requests = requests.filter(|it| it.verb != "watch" && it.verb != "list");
    assert!(requests.is_empty(), "{requests:#?}");
    sm.delete().await;
    sm.wait_until_deleted().await;
    configs.get("desk-01-bootstrap").await.unwrap();
    ns.close().await;
}

/// The controller may read provider objects of all namespaces, and reports what discovery returns.
#[tokio::test]
async fn forged_status_refs_become_no_request_path() {
    const PATH: &str = "namespaces/victim/remotemachines/forged";
    let testbed = testbed().await;
    let (ns, controller) = setup("forged-path").await;
    let sm = scheduled_machine(&ns, "desk-01").schedule(never()).create().await;
    sm.wait_for_phase(Phase::Inactive).await;
    let mark = testbed.audit().mark();
    let reference = |group: &str, kind: &str, name: &str| {
        let api_version = format!("{group}.cluster.x-k8s.io/v1beta1/{PATH}");
        json!({ "apiVersion": api_version, "kind": kind, "name": name, "namespace": ns.name })
    };
    let refs = json!({
        "bootstrapRef": reference("bootstrap", "K0sWorkerConfig", "desk-01-bootstrap"),
        "infrastructureRef": reference("infrastructure", "RemoteMachine", &sm.infrastructure_name()),
    });
    sm.patch_status(&json!({ "status": refs })).await;
    let status = sm.wait_until("the forged references are removed", |it| it.bootstrap_ref.is_none()).await;
    assert_eq!(status.phase, Some(Phase::Inactive));
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).filter(|it| it.uri.contains("victim"));
    assert!(requests.is_empty(), "{requests:#?}");
    assert!(!controller.metrics().await.contains("forged"));
    ns.close().await;
}

#[tokio::test]
async fn cleared_status_refs_are_restored_without_request_storm() {
    let testbed = testbed().await;
    let (ns, _controller) = setup("cleared-status").await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let before = sm.wait_until_running().await;
    let mark = testbed.audit().mark();
    let cleared = json!({ "status": { "bootstrapRef": null, "infrastructureRef": null, "machineRef": null } });
    sm.patch_status(&cleared).await;
    sm.wait_until("the references are restored", |status| {
        (&status.machine_ref, &status.bootstrap_ref, &status.infrastructure_ref)
            == (&before.machine_ref, &before.bootstrap_ref, &before.infrastructure_ref)
    })
    .await;
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name);
    assert!(requests.len() < 12, "{requests:#?}");
    sm.delete().await;
    sm.wait_until_deleted().await;
    assert_eq!(sm.children().await, Children::NONE);
    ns.close().await;
}

#[tokio::test]
async fn removed_finalizer_is_restored() {
    let (ns, _controller) = setup("removed-finalizer").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    sm.patch(&json!({ "metadata": { "finalizers": null } })).await;
    wait_for("the finalizer is restored", async || {
        sm.get().await.metadata.finalizers.is_some_and(|it| it.contains(&keys::FINALIZER.to_owned()))
    })
    .await;
    ns.close().await;
}
