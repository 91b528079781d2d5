//! An object that cannot be decoded interrupts neither the list nor the watch that all objects share.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::provider::{Behaviour, Step};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::fixtures::{
    CONTROLLER_USER, Children, Controller, TestMachine, cluster_resource, condition, condition_message,
    namespace_with_cluster, scheduled_machine, testbed, wait_for,
};
use crate::{raw, serial};

/// `serde_json` gives up at 128 levels, the API server at 10,000.
const DEEP: usize = 140;

fn deep_spec() -> Value {
    json!({ "spec": { "bootstrapSpec": { "spec": raw::nested(DEEP) } } })
}

async fn create_deep(ns: &TestNamespace, name: &str) {
    let mut manifest = json!(scheduled_machine(ns, name).manifest());
    manifest["spec"]["bootstrapSpec"]["spec"] = raw::nested(DEEP);
    raw::create(ns, &manifest).await;
}

/// Makes the provider never finish a machine: these tests need no Node.
async fn never_join(ns: &TestNamespace) {
    let behaviour = Behaviour { infrastructure: Step::Never, ..Behaviour::default() };
    testbed().await.fleet().await.provider.behave_in(&ns.name, behaviour);
}

#[tokio::test]
async fn deep_inline_spec_stops_no_other_object() {
    let _serial = serial().await;
    let testbed = testbed().await;
    let (tenant, other) = (namespace_with_cluster("deep").await, namespace_with_cluster("other").await);
    never_join(&other).await;
    create_deep(&tenant, "deep").await;

    // The list at start-up contains the deep object.
    let controller = Controller::start_with_args(testbed, &[]).await;
    controller.wait_until_ready().await;
    let sm = scheduled_machine(&other, "desk").create().await;
    sm.wait_for_phase(Phase::Active).await;
    raw::wait_until_invalid(&tenant, "deep").await;

    // Each edit is an event of the shared watch. Other objects' events arrive meanwhile, on the same watch.
    testbed.audit().caught_up(&other.client).await;
    let mark = testbed.audit().mark();
    for edit in 0..5 {
        raw::patch(&tenant, "deep", &json!({ "spec": { "priority": edit } })).await;
    }
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    raw::wait_until_invalid(&tenant, "deep").await;
    testbed.audit().caught_up(&other.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER).on("scheduledmachines");
    let restarts = requests.filter(|it| it.verb == "list" || it.verb == "watch");
    assert!(restarts.is_empty(), "the watch was interrupted: {restarts:#?}");
    tenant.close().await;
    other.close().await;
}

#[tokio::test]
async fn deep_inline_spec_is_reported_and_does_not_block_removal() {
    let _serial = serial().await;
    let ns = namespace_with_cluster("deep-removal").await;
    never_join(&ns).await;
    let _controller = Controller::start_with_args(testbed().await, &[]).await;
    let sm = scheduled_machine(&ns, "desk").create().await;
    sm.wait_for_phase(Phase::Active).await;

    raw::patch(&ns, "desk", &deep_spec()).await;
    let status = raw::wait_until_invalid(&ns, "desk").await;
    assert_eq!(status.phase, Some(Phase::Error));
    assert_eq!(condition(&status, "Stalled"), ("True", "InvalidSpec"));
    let message = condition_message(&status, "Stalled");
    assert!(message.contains("spec.bootstrapSpec.spec") && message.contains("32 levels"), "{message}");
    assert_eq!(sm.children().await, Children::ALL, "an existing machine is left alone");
    let version = raw::get(&ns, "desk").await.unwrap().metadata.resource_version;

    raw::patch(&ns, "desk", &json!({ "spec": { "killSwitch": true } })).await;
    wait_for("the machine is removed", async || {
        let status = raw::get(&ns, "desk").await.unwrap().status.unwrap();
        if status.phase == Some(Phase::Terminated) { Ok(()) } else { Err(json!(status)) }
    })
    .await;
    assert_eq!(sm.children().await, Children::NONE);
    assert_ne!(version, raw::get(&ns, "desk").await.unwrap().metadata.resource_version);

    sm.api().delete(&sm.name, &DeleteParams::default()).await.ok();
    wait_for("the object is deleted", async || raw::get(&ns, "desk").await.is_none()).await;
    ns.close().await;
}

/// The condition disappears, and a machine is created, once the spec is corrected.
#[tokio::test]
async fn corrected_inline_spec_clears_stalled() {
    let _serial = serial().await;
    let ns = namespace_with_cluster("deep-corrected").await;
    never_join(&ns).await;
    let _controller = Controller::start_with_args(testbed().await, &[]).await;
    create_deep(&ns, "desk").await;
    let sm = TestMachine::new(&ns, "desk");
    raw::wait_until_invalid(&ns, "desk").await;
    assert_eq!(sm.children().await, Children::NONE);

    let corrected = json!({ "a": null, "preStartCommands": ["true"] });
    raw::patch(&ns, "desk", &json!({ "spec": { "bootstrapSpec": { "spec": corrected } } })).await;
    let status = sm.wait_for_phase(Phase::Active).await;
    assert_eq!(condition(&status, "Stalled"), ("", ""));
    let bootstrap = sm.bootstrap().await.unwrap();
    assert_eq!(
        bootstrap.data["spec"]["preStartCommands"],
        json!(["true"]),
        "the children are created from the edited spec"
    );
    ns.close().await;
}

/// A date that the API server accepts in the status, although no such instant exists.
const BAD_DATE: &str = "2026-01-01T00:00:00+99:99";

#[tokio::test]
async fn undecodable_status_is_repaired_once() {
    let _serial = serial().await;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("bad-status").await;
    never_join(&ns).await;
    let mut controller = Controller::start_with_args(testbed, &[]).await;
    let sm = scheduled_machine(&ns, "desk").create().await;
    sm.wait_for_phase(Phase::Active).await;
    controller.stop().await;
    let conditions = json!([{ "type": "Ready", "status": "True", "reason": "Fake", "message": "",
        "lastTransitionTime": BAD_DATE }]);
    let bad = json!({ "nextCleanup": BAD_DATE, "lastScheduledTime": BAD_DATE, "shutdownStartedAt": BAD_DATE, "conditions": conditions });
    raw::patch(&ns, "desk/status", &json!({ "status": bad })).await;

    let controller = Controller::start_with_args(testbed, &[]).await;
    controller.wait_until_ready().await;
    let is_repaired = async || -> Result<(), String> {
        let request =
            http::Request::get(format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines/desk", ns.name));
        let text = ns.client.request_text(request.body(Vec::new()).unwrap()).await.unwrap();
        if text.contains("+99:99") { Err(text) } else { Ok(()) }
    };
    wait_for("the status is repaired", is_repaired).await;
    let status = sm.wait_until("not Ready", |status| condition(status, "Ready").0 == "False").await;
    assert_eq!(status.phase, Some(Phase::Active), "{status:#?}");
    assert!(status.last_scheduled_time.is_some() && status.shutdown_started_at.is_none(), "{status:#?}");

    // While the controller runs: the watch event is decoded too.
    raw::patch(&ns, "desk/status", &json!({ "status": { "nextActivation": BAD_DATE } })).await;
    wait_for("the status is repaired again", is_repaired).await;
    ns.close().await;
}

/// Machines and Clusters are written by tenants too, and watched by the same controller.
#[tokio::test]
async fn undecodable_machine_or_cluster_stops_no_other_object() {
    let _serial = serial().await;
    let testbed = testbed().await;
    let (tenant, other) = (namespace_with_cluster("bad-capi").await, namespace_with_cluster("other-capi").await);
    never_join(&other).await;
    let mut fields = json!({});
    for _ in 0..DEEP {
        fields = json!({ "f:a": fields });
    }
    let entry = json!({ "manager": "tenant", "operation": "Update", "apiVersion": cluster_resource().api_version,
        "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:annotations": fields } } });
    let patch = json!({ "metadata": { "managedFields": [entry] } });
    let request = http::Request::patch(format!(
        "/apis/{}/namespaces/{}/{}/edge",
        cluster_resource().api_version,
        tenant.name,
        cluster_resource().plural
    ));
    let request = request.header("content-type", "application/merge-patch+json");
    let text = tenant.client.request_text(request.body(serde_json::to_vec(&patch).unwrap()).unwrap()).await.unwrap();
    assert!(text.contains(&"{\"f:a\":".repeat(DEEP)), "the API server does not store deep managedFields: {text}");

    let controller = Controller::start_with_args(testbed, &[]).await;
    controller.wait_until_ready().await;
    scheduled_machine(&other, "desk").create().await.wait_for_phase(Phase::Active).await;
    tenant.close().await;
    other.close().await;
}
