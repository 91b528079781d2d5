//! What belongs to somebody else: it is never touched, and what of ours somebody takes away comes back.

use fivespot_api::Phase;
use fivespot_testbed::provider::kinds::K0S_WORKER_CONFIG;
use fivespot_testbed::wait::eventually;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixtures::{
    CONTROLLER, Desk, SOON, a_cluster, always, condition, machine_resource, never, references, testbed,
};

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
async fn a_status_that_somebody_empties_is_filled_again_and_causes_no_storm() {
    let testbed = testbed().await;
    let (test, _controller) = a_cluster("emptied").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let before = desk.runs().await;
    let mark = testbed.audit().mark();
    let emptied = json!({ "status": { "bootstrapRef": null, "infrastructureRef": null, "machineRef": null } });
    desk.api().patch_status("desk-01", &PatchParams::default(), &Patch::Merge(&emptied)).await.unwrap();
    let refs = (before.machine_ref, before.bootstrap_ref, before.infrastructure_ref);
    desk.until("filled", |it| {
        (&it.machine_ref, &it.bootstrap_ref, &it.infrastructure_ref) == (&refs.0, &refs.1, &refs.2)
    })
    .await;
    testbed.audit().caught_up(&test.client).await;
    let sent = testbed.audit().since(mark).by(CONTROLLER).in_namespace(&test.name);
    assert!(sent.len() < 12, "{sent:#?}");
    desk.delete().await;
    desk.is_gone().await;
    assert_eq!(desk.children().await, (false, false, false));
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
