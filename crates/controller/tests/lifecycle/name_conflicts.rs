//! Objects that another owner manages under the name of a child: the controller neither adopts nor deletes them.

use fivespot_api::Phase;
use fivespot_testbed::provider::kinds::K0S_WORKER_CONFIG;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::json;

use crate::fixtures::{Children, TestMachine, condition, foreign_machine, scheduled_machine, setup, wait_for};

#[tokio::test]
async fn foreign_machine_is_neither_adopted_nor_deleted() {
    let (ns, _controller) = setup("foreign-machine").await;
    let machines = TestMachine::new(&ns, "desk-01").machines();
    let foreign = foreign_machine("desk-01-machine", "edge", &json!({}));
    machines.create(&PostParams::default(), &foreign).await.unwrap();
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let conflict = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&conflict, "ReferencesValid"), ("False", "NameConflict"));

    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    sm.set_kill_switch(false).await;
    sm.wait_for_phase(Phase::Error).await;
    assert!(sm.machine().await.unwrap().metadata.deletion_timestamp.is_none());

    machines.delete("desk-01-machine", &DeleteParams::default()).await.unwrap();
    sm.wait_until_running().await;
    ns.close().await;
}

#[tokio::test]
async fn foreign_bootstrap_object_is_neither_adopted_nor_deleted() {
    let (ns, _controller) = setup("foreign-bootstrap").await;
    let resource = K0S_WORKER_CONFIG.api_resource();
    let configs = ns.dynamic_api(&resource);
    let foreign = DynamicObject::new("desk-01-bootstrap", &resource).data(json!({ "spec": { "args": ["foreign"] } }));
    configs.create(&PostParams::default(), &foreign).await.unwrap();
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let conflict = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&conflict, "ReferencesValid"), ("False", "NameConflict"));
    sm.delete().await;
    sm.wait_until_deleted().await;
    let foreign = configs.get("desk-01-bootstrap").await.unwrap();
    assert_eq!(foreign.data["spec"]["args"], json!(["foreign"]));
    assert!(foreign.metadata.deletion_timestamp.is_none());
    ns.close().await;
}

#[tokio::test]
async fn machine_with_another_controller_owner_is_not_deleted() {
    let (ns, _controller) = setup("new-owner").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    let original = sm.machine().await.unwrap().metadata.owner_references.unwrap();
    let mut owners = json!(original);
    // The garbage collector ignores an owner whose kind is not served.
    owners.as_array_mut().unwrap().push(json!({
        "apiVersion": "example.com/v1", "kind": "Hoarder", "name": "foreign", "uid": "foreign", "controller": true,
    }));
    sm.patch_machine(&json!({ "metadata": { "ownerReferences": owners } })).await;
    sm.wait_for_condition("ReferencesValid", ("False", "NameConflict")).await;
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    assert_eq!(sm.children().await, Children::ALL);
    assert!(sm.infrastructure().await.unwrap().metadata.deletion_timestamp.is_none());

    sm.patch_machine(&json!({ "metadata": { "ownerReferences": original } })).await;
    wait_for("the children are deleted", async || sm.children().await == Children::NONE).await;
    ns.close().await;
}
