//! Taints: ours come, change and go with the spec, and nobody else's are touched.

use fivespot_api::{NodeTaint, Phase, ScheduledMachineStatus, keys};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{TestNamespace, allow};
use k8s_openapi::api::core::v1::{Node, Secret, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::conflicts::asked;
use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, budget, condition, never, testbed, told_once};

/// How many times the value is edited while the Node comes and goes.
const EDITS: usize = 200;

pub(crate) fn lent(value: &str) -> Value {
    json!({ "key": "example.com/lent", "value": value, "effect": "NoSchedule" })
}

fn dedicated() -> Value {
    json!({ "key": "dedicated", "value": "ml", "effect": "PreferNoSchedule" })
}

pub(crate) async fn want(desk: &Desk<'_>, taints: &[Value]) {
    desk.edit(&json!({ "spec": { "nodeTaints": taints } })).await;
}

pub(crate) async fn node(desk: &Desk<'_>) -> Node {
    desk.nodes().get(&desk.node_name()).await.unwrap()
}

fn taints(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default()
}

pub(crate) fn has(node: &Node, taint: &Value) -> bool {
    taints(node).iter().any(|it| json!(it) == *taint)
}

/// What an admin does: adds a taint, or changes the value of one of its key and effect, or removes it.
pub(crate) async fn admin(desk: &Desk<'_>, taint: &Value, there: bool) {
    let is_it = |it: &Taint| json!(it.key) == taint["key"] && json!(it.effect) == taint["effect"];
    eventually("the admin's write is not stale", SOON, async || {
        let node = node(desk).await;
        let mut taints = taints(&node);
        taints.retain(|it| !is_it(it));
        if there {
            taints.push(serde_json::from_value(taint.clone()).unwrap());
        }
        let version = node.resource_version();
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
        let patched = desk.nodes().patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Waits until the Node has just these of ours, and everybody says so: the Node, its record and the status.
pub(crate) async fn applied(desk: &Desk<'_>, taints: &[Value]) -> ScheduledMachineStatus {
    let wanted: Vec<NodeTaint> = serde_json::from_value(json!(taints)).unwrap();
    eventually(&format!("{} has {wanted:?}", desk.name), SOON, async || {
        let (status, node) = (desk.status().await, node(desk).await);
        let record = node.annotations().get(keys::APPLIED_TAINTS_ANNOTATION);
        let recorded: Vec<NodeTaint> = record.map_or_else(Vec::new, |it| serde_json::from_str(it).unwrap());
        let agreed =
            status.applied_node_taints == wanted && recorded == wanted && record.is_some() != wanted.is_empty();
        let seen = json!({ "status": status, "taints": node.spec.as_ref().unwrap().taints, "record": recorded });
        if agreed && taints.iter().all(|it| has(&node, it)) { Ok(status) } else { Err(seen) }
    })
    .await
}

fn is_tainted(status: &ScheduledMachineStatus) -> (String, String) {
    condition(status, "NodeTainted")
}

#[tokio::test]
async fn ours_come_with_the_node_change_with_the_spec_and_go_with_it() {
    let (test, _controller) = a_cluster("taints").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&never(), &json!({ "nodeTaints": [lent("a"), dedicated()] })).await;
    let waiting = desk.reaches(Phase::Inactive).await;
    assert_eq!(is_tainted(&waiting), ("Unknown".into(), "NoNodeYet".into()));
    desk.reschedule(&always()).await;
    desk.runs().await;
    desk.until("tainted", |it| is_tainted(it) == ("True".to_owned(), "Applied".to_owned())).await;
    applied(&desk, &[lent("a"), dedicated()]).await;
    let theirs = json!({ "key": "maintenance", "effect": "NoSchedule" });
    admin(&desk, &theirs, true).await;

    // Another value is an update; what somebody takes away comes back; the admin's own stays.
    want(&desk, &[lent("b"), dedicated()]).await;
    applied(&desk, &[lent("b"), dedicated()]).await;
    admin(&desk, &dedicated(), false).await;
    applied(&desk, &[lent("b"), dedicated()]).await;
    // A record that somebody takes away is written again: the status proves as much.
    let gone = json!({ "metadata": { "annotations": { keys::APPLIED_TAINTS_ANNOTATION: null } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&gone)).await.unwrap();
    applied(&desk, &[lent("b"), dedicated()]).await;
    // Disabled, they stay.
    desk.edit(&json!({ "spec": { "schedule": { "enabled": false }, "nodeTaints": [] } })).await;
    let disabled = desk.reaches(Phase::Disabled).await;
    assert_eq!(disabled.applied_node_taints.len(), 2, "{disabled:#?}");
    assert!(has(&node(&desk).await, &lent("b")));
    desk.edit(&json!({ "spec": { "schedule": { "enabled": true } } })).await;
    let status = applied(&desk, &[]).await;
    assert!(status.conditions.iter().all(|it| it.type_ != "NodeTainted"), "{status:#?}");
    let left = node(&desk).await;
    assert!(has(&left, &theirs) && !has(&left, &lent("b")) && !has(&left, &dedicated()), "{left:#?}");
    test.close().await;
}

#[tokio::test]
async fn an_admins_taint_of_the_same_kind_is_theirs_even_with_the_same_value() {
    let (test, _controller) = a_cluster("taken taints").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    admin(&desk, &dedicated(), true).await;
    want(&desk, &[lent("a"), dedicated()]).await;
    let conflict = ("False".to_owned(), "TaintOwnershipConflict".to_owned());
    let status = desk.until("told", |it| is_tainted(it) == conflict).await;
    let message = &status.conditions.iter().find(|it| it.type_ == "NodeTainted").unwrap().message;
    assert!(message.contains("taint dedicated=ml:PreferNoSchedule is somebody else's"), "{message}");
    assert_eq!(status.phase, Some(Phase::Active));
    applied(&desk, &[lent("a")]).await;
    told_once(&desk, &["TaintOwnershipConflict"]).await;

    // Ours, changed by the admin, is theirs too: neither overwritten nor removed.
    admin(&desk, &lent("changed"), true).await;
    desk.until("told", |it| is_tainted(it) == conflict).await;
    want(&desk, &[]).await;
    let edited = desk.get().await.metadata.generation;
    desk.until("still told", |it| it.observed_generation >= edited && is_tainted(it) == conflict).await;
    let left = node(&desk).await;
    assert!(has(&left, &dedicated()) && has(&left, &lent("changed")), "{left:#?}");
    // The admin lets go, and so do we.
    admin(&desk, &lent("changed"), false).await;
    applied(&desk, &[]).await;
    assert!(has(&node(&desk).await, &dedicated()));
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_is_taken_back_has_the_taints_of_the_spec_as_it_is_then() {
    let (test, _controller) = a_cluster("taints back").await;
    let desk = Desk::new(&test, "desk-01");
    let more = json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h", "nodeTaints": [lent("a")] });
    desk.create(&always(), &more).await;
    desk.runs().await;
    applied(&desk, &[lent("a")]).await;
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;
    desk.reschedule(&never()).await;
    desk.until("held", |it| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"))).await;
    want(&desk, &[]).await;
    desk.reschedule(&always()).await;
    desk.runs().await;
    applied(&desk, &[]).await;
    let back = node(&desk).await;
    assert!(!has(&back, &lent("a")) && back.spec.unwrap().unschedulable != Some(true));
    test.api::<PodDisruptionBudget>().delete("web", &DeleteParams::default()).await.unwrap();
    test.close().await;
}

/// Says in the kubelet's place whether a Node is well; the node lifecycle adds and removes its own taints for it.
async fn say_ready(nodes: &Api<Node>, name: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

#[tokio::test]
async fn while_a_node_comes_and_goes_and_ours_are_edited_all_the_time_nobodys_taint_is_lost() {
    let (test, _controller) = a_cluster("taints in a storm").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeTaints": [lent("v0")] })).await;
    desk.runs().await;
    applied(&desk, &[lent("v0")]).await;
    let theirs = json!({ "key": "maintenance", "value": "tonight", "effect": "NoSchedule" });
    admin(&desk, &theirs, true).await;
    let not_ready = |node: &Node| taints(node).iter().any(|it| it.key == "node.kubernetes.io/not-ready");
    let mut seen_not_ready = false;
    let mark = testbed().await.audit().mark();
    for edit in 1..=EDITS {
        want(&desk, &[lent(&format!("v{edit}"))]).await;
        if edit % 10 == 0 {
            say_ready(&desk.nodes(), &desk.node_name(), edit % 20 == 0).await;
        }
        let now = node(&desk).await;
        assert!(has(&now, &theirs), "after {edit} edits: {now:#?}");
        seen_not_ready |= not_ready(&now);
    }
    assert!(seen_not_ready, "the node lifecycle never put its own taint there");
    let not_yet = ("False".to_owned(), "NodeNotReady".to_owned());
    eventually("it waits for the Node to be Ready", SOON, async || {
        say_ready(&desk.nodes(), &desk.node_name(), false).await;
        is_tainted(&desk.status().await) == not_yet
    })
    .await;
    say_ready(&desk.nodes(), &desk.node_name(), true).await;
    desk.until("tainted again", |it| is_tainted(it) == ("True".to_owned(), "Applied".to_owned())).await;
    applied(&desk, &[lent(&format!("v{EDITS}"))]).await;
    eventually("the node lifecycle takes its own taint off", SOON, async || !not_ready(&node(&desk).await)).await;
    assert!(has(&node(&desk).await, &theirs));
    // Each write was carried out, or was refused because somebody was faster; how many were is chance.
    let answers = asked(&desk, mark).await;
    let written = answers.iter().filter(|(verb, code)| verb == "patch" && *code == 200).count();
    assert!(written > 0 && answers.iter().all(|(_, code)| matches!(code, 200 | 409)), "{answers:?}");
    test.close().await;
}

/// A controller that may look at the Nodes of its workload cluster, and no more.
async fn one_that_only_looks(test: &TestNamespace) -> (Controller, PolicyRule) {
    let testbed = testbed().await;
    testbed.cluster(test, "edge").await.unwrap();
    let look = allow("", &["nodes", "configmaps"], &["get", "list", "watch"]);
    let access = test.cluster_wide_account("looker", vec![look.clone()]).await.unwrap();
    let kubeconfig = json!({ "stringData": { "value": access.kubeconfig() } });
    test.api::<Secret>().patch("edge-kubeconfig", &PatchParams::default(), &Patch::Merge(&kubeconfig)).await.unwrap();
    (Controller::start_in(testbed, test).await, look)
}

#[tokio::test]
async fn what_is_wrong_with_the_taints_hides_nothing_that_is_wrong_with_the_agent() {
    let test = testbed().await.namespace("both refused").await;
    let (_controller, _) = one_that_only_looks(&test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeTaints": [lent("a")], "killIfCommands": ["java"] })).await;
    let both = |it: &ScheduledMachineStatus| is_tainted(it).1 == "PatchFailed" && condition(it, "Ready").1 == "Error";
    let status = desk.until("told both", both).await;
    let message = status.message.unwrap();
    assert!(message.contains("its owner cannot take the machine back") && message.contains("forbidden"), "{message}");
    assert_eq!(status.phase, Some(Phase::Active));
    test.close().await;
}

#[tokio::test]
async fn taints_that_may_not_be_written_are_told_and_written_when_they_may_be() {
    let test = testbed().await.namespace("taints refused").await;
    let (_controller, look) = one_that_only_looks(&test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeTaints": [lent("a")] })).await;
    let status = desk.until("refused", |it| is_tainted(it).1 == "PatchFailed").await;
    let message = &status.conditions.iter().find(|it| it.type_ == "NodeTainted").unwrap().message;
    assert!(message.contains("cannot taint Node") && message.contains("forbidden"), "{message}");
    // Nothing else is wrong.
    assert_eq!((status.phase, condition(&status, "Ready").0), (Some(Phase::Active), "True".to_owned()));

    let roles: Api<ClusterRole> = Api::all(test.client.clone());
    let more = json!({ "rules": [look, allow("", &["nodes"], &["patch"])] });
    let role = format!("{}-looker", test.name);
    roles.patch(&role, &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    applied(&desk, &[lent("a")]).await;
    test.close().await;
}
