//! Another client writes the Node or the Machine between the controller's read and its write.

use fivespot_api::{Phase, keys};
use fivespot_testbed::FaultProxy;
use fivespot_testbed::audit::AuditMark;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use kube::ResourceExt as _;
use serde_json::json;

use crate::fixtures::{
    Controller, TestMachine, always, condition, messages, namespace_with_cluster, never, scheduled_machine,
    sent_by_controller, testbed, wait_for,
};
use crate::kubeconfig_errors::write_kubeconfig;
use crate::taints::{admin_sets_taint, has_taint, lent, set_node_taints, wait_until_applied};

/// The requests that the controller has sent about the Node since `mark`, with the response codes.
pub(crate) async fn node_requests(sm: &TestMachine<'_>, mark: AuditMark) -> Vec<(String, u16)> {
    let audit = testbed().await.audit();
    audit.caught_up(&sm.ns.client).await;
    let requests = audit.since(mark).by(WORKLOAD_ADMIN).on("nodes").filter(sent_by_controller);
    requests.filter(|it| it.name == sm.node_name()).0.into_iter().map(|it| (it.verb, it.code)).collect()
}

fn requests(expected: &[(&str, u16)]) -> Vec<(String, u16)> {
    expected.iter().map(|(verb, code)| ((*verb).to_owned(), *code)).collect()
}

#[tokio::test]
async fn conflicting_node_write_is_retried_with_fresh_read() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("write-conflict").await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap().through(&proxy);
    write_kubeconfig(&ns, &access.kubeconfig()).await;
    let _controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;

    // An admin adds a taint while the controller's taint is in flight. Both remain.
    let mark = testbed.audit().mark();
    proxy.hold_request_of(1);
    set_node_taints(&sm, &[lent("a")]).await;
    wait_for("the taint is in flight", async || proxy.holds_request()).await;
    let admin_taint = json!({ "key": "maintenance", "value": "tonight", "effect": "NoSchedule" });
    admin_sets_taint(&sm, &admin_taint).await;
    proxy.release();
    let status = wait_until_applied(&sm, &[lent("a")]).await;
    assert_eq!(condition(&status, "NodeTainted"), ("True", "Applied"));
    assert_eq!(condition(&status, "Ready").0, "True", "{status:#?}");
    assert!(has_taint(&sm.node().await, &admin_taint));
    assert_eq!(node_requests(&sm, mark).await, requests(&[("patch", 409), ("get", 200), ("patch", 200)]));

    // An admin cordons the Node while the controller's cordon is in flight. The controller has nothing to write, and does
    // not uncordon the Node later.
    sm.create_blocked_pod("web").await;
    let mark = testbed.audit().mark();
    proxy.hold_request_of(1);
    sm.set_schedule(&never()).await;
    wait_for("the cordon is in flight", async || proxy.holds_request()).await;
    sm.patch_node(&json!({ "spec": { "unschedulable": true } })).await;
    proxy.release();
    sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
    assert_eq!(node_requests(&sm, mark).await, requests(&[("patch", 409), ("get", 200)]));
    sm.set_schedule(&always()).await;
    sm.wait_until_running().await;
    let node = sm.node().await;
    assert!(!node.annotations().contains_key(keys::CORDONED_BY_ANNOTATION), "{node:#?}");
    assert_eq!(node.spec.as_ref().unwrap().unschedulable, Some(true), "the controller removed the admin's cordon");
    assert!(has_taint(&node, &admin_taint) && has_taint(&node, &lent("a")), "{node:#?}");
    sm.unblock_pod("web").await;
    ns.close().await;
}

/// The delete carries the version that it is based on: a process that is stopped before it sends the request does not delete
/// a Machine that has changed since.
#[tokio::test]
async fn machine_is_deleted_in_the_known_version_or_after_a_read() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("delete-conflict").await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
    let _controller = Controller::start_as(testbed, &access.through(&proxy), &["--namespace", &ns.name]);
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;

    // The first write annotates the Machine.
    let mark = testbed.audit().mark();
    proxy.hold_request_of(2);
    sm.set_kill_switch(true).await;
    wait_for("the delete is in flight", async || proxy.holds_request()).await;
    assert!(!sm.machine_is_terminating().await);
    sm.patch_machine(&json!({ "metadata": { "annotations": { "example.com/changed": "true" } } })).await;
    proxy.release();
    sm.wait_for_phase(Phase::Terminated).await;
    let audit = testbed.audit();
    audit.caught_up(&ns.client).await;
    let deletes = audit.since(mark).writes().on("machines").in_namespace(&ns.name).filter(sent_by_controller);
    let codes: Vec<u16> = deletes.filter(|it| it.verb == "delete").0.into_iter().map(|it| it.code).collect();
    assert_eq!(codes, [409, 200]);
    ns.close().await;
}
