//! Somebody else writes the Node between our look and our write.

use fivespot_api::keys;
use fivespot_testbed::FaultProxy;
use fivespot_testbed::audit::AuditMark;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, always, budget, condition, never, testbed};
use crate::kubeconfigs::write_kubeconfig;
use crate::taints::{admin, applied, has, lent, node, want};

/// What the controller asked of one Node since then, and what it was answered.
pub(crate) async fn asked(desk: &Desk<'_>, since: AuditMark) -> Vec<(String, u16)> {
    let audit = testbed().await.audit();
    audit.caught_up(&desk.test.client).await;
    let ours = audit.since(since).by(WORKLOAD_ADMIN).on("nodes").filter(|it| it.name == desk.node_name());
    ours.filter(|it| it.user_agent.starts_with("5spot/")).0.into_iter().map(|it| (it.verb, it.code)).collect()
}

fn answers(expected: &[(&str, u16)]) -> Vec<(String, u16)> {
    expected.iter().map(|(verb, code)| ((*verb).to_owned(), *code)).collect()
}

#[tokio::test]
async fn a_write_of_a_node_that_somebody_was_faster_than_is_refused_and_computed_anew() {
    let testbed = testbed().await;
    let test = testbed.namespace("conflict").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap().through(&proxy);
    write_kubeconfig(&test, &access.kubeconfig()).await;
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })).await;
    desk.runs().await;

    // Our taint is on its way when an admin puts theirs there. Both stay.
    let mark = testbed.audit().mark();
    proxy.hold_request_of(1);
    want(&desk, &[lent("a")]).await;
    eventually("our taint is on its way", SOON, async || proxy.holds_request()).await;
    let theirs = json!({ "key": "maintenance", "value": "tonight", "effect": "NoSchedule" });
    admin(&desk, &theirs, true).await;
    proxy.release();
    let status = applied(&desk, &[lent("a")]).await;
    assert_eq!(condition(&status, "NodeTainted"), ("True".to_owned(), "Applied".to_owned()));
    assert_eq!(condition(&status, "Ready").0, "True", "{status:#?}");
    assert!(has(&node(&desk).await, &theirs));
    assert_eq!(asked(&desk, mark).await, answers(&[("patch", 409), ("get", 200), ("patch", 200)]));

    // Our cordon is on its way when an admin closes the Node. It is closed, so there is nothing to write, and it is theirs.
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;
    let mark = testbed.audit().mark();
    proxy.hold_request_of(1);
    desk.reschedule(&never()).await;
    eventually("our cordon is on its way", SOON, async || proxy.holds_request()).await;
    let close = json!({ "spec": { "unschedulable": true } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&close)).await.unwrap();
    proxy.release();
    desk.until("held", |it| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"))).await;
    assert_eq!(asked(&desk, mark).await, answers(&[("patch", 409), ("get", 200)]));
    desk.reschedule(&always()).await;
    desk.runs().await;
    let back = node(&desk).await;
    assert!(!back.annotations().contains_key(keys::CORDONED_BY_ANNOTATION), "{back:#?}");
    assert_eq!(back.spec.as_ref().unwrap().unschedulable, Some(true), "an admin's cordon was taken off");
    assert!(has(&back, &theirs) && has(&back, &lent("a")), "{back:#?}");
    test.api::<PodDisruptionBudget>().delete("web", &DeleteParams::default()).await.unwrap();
    test.close().await;
}
