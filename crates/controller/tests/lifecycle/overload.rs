//! The API server of the management cluster is overloaded: API priority and fairness rejects a write with `Retry-After`.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::{FaultProxy, TestNamespace};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::fixtures::{
    CONTROLLER_USER, Controller, namespace_with_cluster, never, scheduled_machine, testbed, wait_for,
};

const RETRY_AFTER: u32 = 8;

#[tokio::test]
async fn no_object_is_written_before_the_time_that_the_api_server_requests() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("overload").await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
    let controller = Controller::start_as(testbed, &access.through(&proxy), &["--namespace", &ns.name]);
    let mut machines = Vec::new();
    for number in 0..6 {
        machines.push(scheduled_machine(&ns, &format!("desk-{number}")).schedule(never()).disabled().create().await);
    }
    for sm in &machines {
        sm.wait_for_phase(Phase::Disabled).await;
    }
    testbed.audit().caught_up(&ns.client).await;
    let events = || testbed.audit().entries().by(CONTROLLER_USER).in_namespace(&ns.name).on("events");
    wait_for("the events are published", async || events().len() >= machines.len()).await;

    let (mark, start) = (testbed.audit().mark(), Timestamp::now());
    proxy.reject_next(1, StatusCode::TOO_MANY_REQUESTS, Some(RETRY_AFTER));
    let [first, urgent, others @ ..] = machines.as_slice() else { panic!("six machines") };
    let rejected = || proxy.writes().iter().any(|write| write.status == StatusCode::TOO_MANY_REQUESTS);
    first.set_kill_switch(true).await;
    wait_for("a write is rejected", async || rejected()).await;
    // Neither the rejected object, nor an urgent one, nor others are written before.
    urgent.set_kill_switch(true).await;
    for sm in others {
        sm.set_enabled(true).await;
    }
    for sm in [first, urgent] {
        sm.wait_for_phase(Phase::Terminated).await;
    }
    for sm in others {
        sm.wait_for_phase(Phase::Inactive).await;
    }
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name).writes();
    assert!(writes.len() >= machines.len(), "{writes:#?}");
    let accepted = start + SignedDuration::from_secs(RETRY_AFTER.into());
    let early = writes.filter(|it| it.received < accepted);
    assert!(early.is_empty(), "{early:#?}\n{}", controller.log());
    let warnings = controller.log_lines().iter().filter(|line| line.is_warning_or_error()).count();
    assert_eq!(warnings, 1, "the pause is logged once: {}", controller.log());
    ns.close().await;
}

#[tokio::test]
async fn webhook_that_requests_to_wait_postpones_only_its_object() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("webhook-429").await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
    let controller = Controller::start_as(testbed, &access.through(&proxy), &["--namespace", &ns.name]);
    let [first, other] = ["first", "other"].map(|name| scheduled_machine(&ns, name).schedule(never()).disabled());
    let (first, other) = (first.create().await, other.create().await);
    first.wait_for_phase(Phase::Disabled).await;
    other.wait_for_phase(Phase::Disabled).await;

    let (mark, start) = (testbed.audit().mark(), Timestamp::now());
    proxy.reject_next_as_webhook(StatusCode::TOO_MANY_REQUESTS, RETRY_AFTER);
    let rejected = || proxy.writes().iter().any(|write| write.status == StatusCode::TOO_MANY_REQUESTS);
    first.set_kill_switch(true).await;
    wait_for("a write is rejected", async || rejected()).await;
    other.set_kill_switch(true).await;
    other.wait_for_phase(Phase::Terminated).await;
    let is_terminated = first.status().await.phase == Some(Phase::Terminated);
    // An edit triggers a reconcile, which does not write either.
    first.patch(&json!({ "spec": { "priority": 7 } })).await;
    first.wait_for_phase(Phase::Terminated).await;
    assert!(!is_terminated, "the other object waited too: {}", controller.log());
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().since(mark).by(CONTROLLER_USER).in_namespace(&ns.name).writes();
    let accepted = start + SignedDuration::from_secs(RETRY_AFTER.into());
    let early = writes.filter(|it| it.name == first.name && it.received < accepted);
    assert!(early.is_empty(), "{early:#?}\n{}", controller.log());
    ns.close().await;
}

/// Makes API priority and fairness execute the controller's writes in a namespace one by one, and reject those in between.
async fn limit_writes(ns: &TestNamespace) {
    let level: PriorityLevelConfiguration = serde_json::from_value(json!({
        "metadata": { "name": ns.name },
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": { "type": "Reject" },
            },
        },
    }))
    .unwrap();
    let schema: FlowSchema = serde_json::from_value(json!({
        "metadata": { "name": ns.name },
        "spec": {
            "priorityLevelConfiguration": { "name": ns.name },
            "matchingPrecedence": 2,
            "rules": [{
                "subjects": [{
                    "kind": "ServiceAccount",
                    "serviceAccount": { "namespace": "5spot-system", "name": "5spot-controller" },
                }],
                "resourceRules": [{
                    "verbs": ["create", "patch", "delete"],
                    "apiGroups": ["*"],
                    "resources": ["*"],
                    "namespaces": [ns.name],
                }],
            }],
        },
    }))
    .unwrap();
    let params = PostParams::default();
    Api::<PriorityLevelConfiguration>::all(ns.client.clone()).create(&params, &level).await.unwrap();
    Api::<FlowSchema>::all(ns.client.clone()).create(&params, &schema).await.unwrap();
    // There is no sign of when the API server applies it.
    tokio::time::sleep(Duration::from_secs(3)).await;
}

async fn remove_limit(ns: &TestNamespace) {
    let params = DeleteParams::default();
    Api::<FlowSchema>::all(ns.client.clone()).delete(&ns.name, &params).await.unwrap();
    Api::<PriorityLevelConfiguration>::all(ns.client.clone()).delete(&ns.name, &params).await.unwrap();
}

#[tokio::test]
async fn api_priority_and_fairness_is_obeyed_and_every_object_written_later() {
    const MACHINES: usize = 15;
    let testbed = testbed().await;
    let ns = namespace_with_cluster("fairness").await;
    limit_writes(&ns).await;
    let mut machines = Vec::new();
    for number in 0..MACHINES {
        machines.push(scheduled_machine(&ns, &format!("desk-{number}")).schedule(never()).create().await);
    }
    let controller = Controller::start(testbed, &ns).await;
    for sm in &machines {
        sm.wait_for_phase(Phase::Inactive).await;
    }
    testbed.audit().caught_up(&ns.client).await;
    let writes = testbed.audit().entries().by(CONTROLLER_USER).in_namespace(&ns.name).writes();
    let rejections = writes.clone().filter(|it| it.code == 429).0;
    assert!(!rejections.is_empty(), "the API server rejected no write");
    // A rejection requests to wait for at least a second. Writes that were in flight with it come soon after it.
    let early = writes.filter(|write| {
        let after = |rejection: &AuditEntry| write.received.duration_since(rejection.at);
        let pause = SignedDuration::from_millis(500)..SignedDuration::from_secs(1);
        rejections.iter().any(|rejection| pause.contains(&after(rejection)))
    });
    assert!(early.is_empty(), "{early:#?}\n{}", controller.log());
    remove_limit(&ns).await;
    ns.close().await;
}
