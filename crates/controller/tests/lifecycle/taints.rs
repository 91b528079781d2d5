//! Node taints: the controller adds, changes and removes its own, and no others.

use fivespot_api::{NodeTaint, Phase, ScheduledMachineStatus, keys};
use fivespot_testbed::{TestNamespace, allow};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixtures::{
    Controller, TestMachine, always, assert_events_once, condition, condition_message, message_contains, messages,
    namespace_with_cluster, never, scheduled_machine, setup, testbed, wait_for,
};
use crate::kubeconfig_errors::write_kubeconfig;
use crate::write_conflicts::node_requests;

/// How often the taint is edited while the Node's readiness changes.
const EDITS: usize = 200;
const CONFLICT: (&str, &str) = ("False", "TaintOwnershipConflict");

pub(crate) fn lent(value: &str) -> Value {
    json!({ "key": "example.com/lent", "value": value, "effect": "NoSchedule" })
}

fn dedicated() -> Value {
    json!({ "key": "dedicated", "value": "ml", "effect": "PreferNoSchedule" })
}

/// Edits `spec.nodeTaints`.
pub(crate) async fn set_node_taints(sm: &TestMachine<'_>, taints: &[Value]) {
    sm.patch(&json!({ "spec": { "nodeTaints": taints } })).await;
}

fn taints(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

pub(crate) fn has_taint(node: &Node, taint: &Value) -> bool {
    taints(node).iter().any(|it| json!(it) == *taint)
}

/// Adds a taint to the Node as an admin, or changes the value of the one with the same key and effect.
pub(crate) async fn admin_sets_taint(sm: &TestMachine<'_>, taint: &Value) {
    replace_taint(sm, taint, Some(serde_json::from_value(taint.clone()).unwrap())).await;
}

/// Removes the taint with the same key and effect from the Node as an admin.
async fn admin_removes_taint(sm: &TestMachine<'_>, taint: &Value) {
    replace_taint(sm, taint, None).await;
}

async fn replace_taint(sm: &TestMachine<'_>, old: &Value, new: Option<Taint>) {
    wait_for("the admin's write does not conflict", async || {
        let node = sm.node().await;
        let mut taints = taints(&node);
        taints.retain(|it| json!(it.key) != old["key"] || json!(it.effect) != old["effect"]);
        taints.extend(new.clone());
        let version = node.resource_version();
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        let patched = sm.nodes().patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Waits until status, annotation and Node agree that exactly these taints are applied.
pub(crate) async fn wait_until_applied(sm: &TestMachine<'_>, expected: &[Value]) -> ScheduledMachineStatus {
    let managed: Vec<NodeTaint> = serde_json::from_value(json!(expected)).unwrap();
    wait_for(&format!("{} has taints {managed:?}", sm.name), async || {
        let (status, node) = (sm.status().await, sm.node().await);
        let annotation = node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION);
        let recorded: Vec<NodeTaint> = annotation.map_or_else(Vec::new, |it| serde_json::from_str(it).unwrap());
        let agreed =
            status.applied_node_taints == managed && recorded == managed && annotation.is_some() != managed.is_empty();
        let observed = json!({ "status": status, "taints": taints(&node), "annotation": recorded });
        if agreed && expected.iter().all(|taint| has_taint(&node, taint)) { Ok(status) } else { Err(observed) }
    })
    .await
}

fn node_tainted(status: &ScheduledMachineStatus) -> (&str, &str) {
    condition(status, "NodeTainted")
}

async fn wait_for_node_tainted(sm: &TestMachine<'_>, expected: (&str, &str)) -> ScheduledMachineStatus {
    sm.wait_for_condition("NodeTainted", expected).await
}

#[tokio::test]
async fn taints_follow_node_and_spec() {
    let (ns, _controller) = setup("taints").await;
    let sm = scheduled_machine(&ns, "desk-01").schedule(never()).node_taints(&[lent("a"), dedicated()]).create().await;
    let inactive = sm.wait_for_phase(Phase::Inactive).await;
    assert_eq!(node_tainted(&inactive), ("Unknown", "NoNodeYet"));
    sm.set_schedule(&always()).await;
    sm.wait_until_running().await;
    wait_for_node_tainted(&sm, ("True", "Applied")).await;
    wait_until_applied(&sm, &[lent("a"), dedicated()]).await;
    let admin_taint = json!({ "key": "maintenance", "effect": "NoSchedule" });
    admin_sets_taint(&sm, &admin_taint).await;

    set_node_taints(&sm, &[lent("b"), dedicated()]).await;
    wait_until_applied(&sm, &[lent("b"), dedicated()]).await;
    admin_removes_taint(&sm, &dedicated()).await;
    wait_until_applied(&sm, &[lent("b"), dedicated()]).await;
    // The status proves the ownership if the annotation is removed.
    sm.patch_node(&json!({ "metadata": { "annotations": { keys::APPLIED_TAINTS_ANNOTATION: null } } })).await;
    wait_until_applied(&sm, &[lent("b"), dedicated()]).await;
    // A disabled object keeps its taints.
    sm.patch(&json!({ "spec": { "schedule": { "enabled": false }, "nodeTaints": [] } })).await;
    let disabled = sm.wait_for_phase(Phase::Disabled).await;
    assert_eq!(disabled.applied_node_taints.len(), 2, "{disabled:#?}");
    assert!(has_taint(&sm.node().await, &lent("b")));
    sm.set_enabled(true).await;
    let status = wait_until_applied(&sm, &[]).await;
    assert!(status.conditions.iter().all(|it| it.type_ != "NodeTainted"), "{status:#?}");
    let node = sm.node().await;
    assert!(has_taint(&node, &admin_taint), "{node:#?}");
    assert!(!has_taint(&node, &lent("b")) && !has_taint(&node, &dedicated()), "{node:#?}");
    ns.close().await;
}

#[tokio::test]
async fn admin_taint_with_same_key_and_effect_is_a_conflict() {
    let (ns, _controller) = setup("taint-conflict").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    admin_sets_taint(&sm, &dedicated()).await;
    set_node_taints(&sm, &[lent("a"), dedicated()]).await;
    let status = wait_for_node_tainted(&sm, CONFLICT).await;
    let message = condition_message(&status, "NodeTainted");
    assert!(message.contains(&messages::taint_not_managed("dedicated=ml:PreferNoSchedule")), "{message}");
    assert_eq!(status.phase, Some(Phase::Active));
    wait_until_applied(&sm, &[lent("a")]).await;
    assert_events_once(&sm, &["TaintOwnershipConflict"]).await;

    // A taint of the controller that an admin has changed belongs to the admin: it is neither overwritten nor removed.
    admin_sets_taint(&sm, &lent("changed")).await;
    wait_for_node_tainted(&sm, CONFLICT).await;
    set_node_taints(&sm, &[]).await;
    let generation = sm.get().await.metadata.generation;
    sm.wait_until("still a conflict", |status| {
        status.observed_generation >= generation && node_tainted(status) == CONFLICT
    })
    .await;
    let node = sm.node().await;
    assert!(has_taint(&node, &dedicated()) && has_taint(&node, &lent("changed")), "{node:#?}");
    admin_removes_taint(&sm, &lent("changed")).await;
    wait_until_applied(&sm, &[]).await;
    assert!(has_taint(&sm.node().await, &dedicated()));
    ns.close().await;
}

#[tokio::test]
async fn cancelled_shutdown_applies_current_taints() {
    let (ns, _controller) = setup("taints-cancelled").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().node_taints(&[lent("a")]).create_running().await;
    wait_until_applied(&sm, &[lent("a")]).await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
    set_node_taints(&sm, &[]).await;
    sm.set_schedule(&always()).await;
    sm.wait_until_running().await;
    wait_until_applied(&sm, &[]).await;
    let node = sm.node().await;
    assert!(!has_taint(&node, &lent("a")) && node.spec.unwrap().unschedulable != Some(true));
    sm.unblock_pod("web").await;
    ns.close().await;
}

/// Sets the Ready condition in place of the kubelet; the node lifecycle controller adds or removes its taint.
async fn set_node_ready(sm: &TestMachine<'_>, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
    sm.nodes().patch_status(&sm.node_name(), &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

#[tokio::test]
async fn no_taint_is_lost_while_node_flaps_and_spec_changes() {
    let (ns, _controller) = setup("taints-flapping-node").await;
    let sm = scheduled_machine(&ns, "desk-01").node_taints(&[lent("v0")]).create_running().await;
    wait_until_applied(&sm, &[lent("v0")]).await;
    let admin_taint = json!({ "key": "maintenance", "value": "tonight", "effect": "NoSchedule" });
    admin_sets_taint(&sm, &admin_taint).await;
    let is_not_ready = |node: &Node| taints(node).iter().any(|it| it.key == "node.kubernetes.io/not-ready");
    let mut was_not_ready = false;
    let mark = testbed().await.audit().mark();
    for edit in 1..=EDITS {
        set_node_taints(&sm, &[lent(&format!("v{edit}"))]).await;
        if edit % 10 == 0 {
            set_node_ready(&sm, edit % 20 == 0).await;
        }
        let node = sm.node().await;
        assert!(has_taint(&node, &admin_taint), "after {edit} edits: {node:#?}");
        was_not_ready |= is_not_ready(&node);
    }
    assert!(was_not_ready, "the node lifecycle controller never added its taint");
    wait_for("the controller waits for the Node to be Ready", async || {
        set_node_ready(&sm, false).await;
        node_tainted(&sm.status().await) == ("False", "NodeNotReady")
    })
    .await;
    set_node_ready(&sm, true).await;
    wait_for_node_tainted(&sm, ("True", "Applied")).await;
    wait_until_applied(&sm, &[lent(&format!("v{EDITS}"))]).await;
    wait_for("the node lifecycle controller removes its taint", async || !is_not_ready(&sm.node().await)).await;
    assert!(has_taint(&sm.node().await, &admin_taint));
    // Every write succeeded or conflicted; how many conflict depends on timing.
    let requests = node_requests(&sm, mark).await;
    let written = requests.iter().filter(|(verb, code)| verb == "patch" && *code == 200).count();
    assert!(written > 0 && requests.iter().all(|(_, code)| matches!(code, 200 | 409)), "{requests:?}");
    ns.close().await;
}

/// Starts a controller whose kubeconfig only allows to read Nodes; returns the rule, too.
async fn start_with_read_only_kubeconfig(ns: &TestNamespace) -> (Controller, PolicyRule) {
    let read = allow("", &["nodes", "configmaps"], &["get", "list", "watch"]);
    let access = ns.cluster_wide_account("reader", vec![read.clone()]).await.unwrap();
    write_kubeconfig(ns, &access.kubeconfig()).await;
    (Controller::start(testbed().await, ns).await, read)
}

#[tokio::test]
async fn taint_failure_does_not_hide_agent_failure() {
    let ns = namespace_with_cluster("taints-and-agent").await;
    let _controller = start_with_read_only_kubeconfig(&ns).await;
    let sm = scheduled_machine(&ns, "desk-01").node_taints(&[lent("a")]).kill_if_command("java").create().await;
    let status = sm
        .wait_until("both are reported", |status| {
            node_tainted(status).1 == "PatchFailed" && condition(status, "Ready").1 == "Error"
        })
        .await;
    assert!(message_contains(&status, messages::NOT_RECLAIMABLE), "{status:#?}");
    assert!(message_contains(&status, messages::HTTP_STATUS_FORBIDDEN), "{status:#?}");
    assert_eq!(status.phase, Some(Phase::Active));
    ns.close().await;
}

#[tokio::test]
async fn forbidden_taints_are_reported_and_applied_once_allowed() {
    let ns = namespace_with_cluster("forbidden-taints").await;
    let (_controller, read) = start_with_read_only_kubeconfig(&ns).await;
    let sm = scheduled_machine(&ns, "desk-01").node_taints(&[lent("a")]).create().await;
    let status = sm.wait_until("forbidden", |status| node_tainted(status).1 == "PatchFailed").await;
    let message = condition_message(&status, "NodeTainted");
    assert!(
        message.contains(messages::CANNOT_TAINT_NODE) && message.contains(messages::HTTP_STATUS_FORBIDDEN),
        "{message}"
    );
    assert_eq!((status.phase, condition(&status, "Ready").0), (Some(Phase::Active), "True"));

    let roles: Api<ClusterRole> = Api::all(ns.client.clone());
    let rules = json!({ "rules": [read, allow("", &["nodes"], &["patch"])] });
    let role = format!("{}-reader", ns.name);
    roles.patch(&role, &PatchParams::default(), &Patch::Merge(&rules)).await.unwrap();
    wait_until_applied(&sm, &[lent("a")]).await;
    ns.close().await;
}
