//! The owner wants the machine back: what the agent is told, what its request comes to, and that it counts once.
//!
//! The request is written here as the agent writes it; the agent itself is tried on a real node.

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::provider::{Behaviour, Removal};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixtures::{
    CONTROLLER, Controller, Desk, SOON, a_cluster, always, budget, condition, never, root, testbed, told_once,
};
use crate::process::get;

const LABEL: &str = "5spot.finos.org/reclaim-agent";
const REQUESTED: &str = "5spot.finos.org/reclaim-requested";
const REASON: &str = "5spot.finos.org/reclaim-reason";
const REQUESTED_AT: &str = "5spot.finos.org/reclaim-requested-at";

fn java() -> Value {
    json!({ "killIfCommands": ["java"] })
}

fn orders_of(client: &kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "5spot-system")
}

fn orders_name(desk: &Desk<'_>) -> String {
    format!("reclaim-agent-{}", desk.node_name())
}

/// What the agent is told, and whether it may be on the Node.
async fn agent(desk: &Desk<'_>, client: &kube::Client) -> (bool, Option<String>) {
    let node = Api::<Node>::all(client.clone()).get_opt(&desk.node_name()).await.unwrap();
    let orders = orders_of(client).get_opt(&orders_name(desk)).await.unwrap();
    let labelled = node.is_some_and(|it| it.labels().get(LABEL).is_some_and(|it| it == "enabled"));
    (labelled, orders.map(|it| it.data.unwrap()["reclaim.toml"].clone()))
}

async fn agent_is(desk: &Desk<'_>, client: &kube::Client, wanted: (bool, Option<&str>)) {
    eventually(&format!("the agent is {wanted:?}"), SOON, async || {
        let is = agent(desk, client).await;
        if (is.0, is.1.as_deref()) == wanted { Ok(()) } else { Err(json!(is)) }
    })
    .await;
}

fn orders(command: &str) -> String {
    format!("match_commands = [\"{command}\"]\nmatch_argv_substrings = [\"{command}\"]\n")
}

async fn looked_after(desk: &Desk<'_>) {
    agent_is(desk, &desk.test.client, (true, Some(&orders("java")))).await;
}

/// What the agent writes when a program is found.
async fn ask(desk: &Desk<'_>) {
    ask_for(desk, "process-match: java", &jiff::Timestamp::now().to_string()).await;
}

async fn ask_for(desk: &Desk<'_>, reason: &str, at: &str) {
    let annotations = json!({ REQUESTED: "true", REASON: reason, REQUESTED_AT: at });
    let patch = json!({ "metadata": { "annotations": annotations } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn is_asked(desk: &Desk<'_>) -> bool {
    let node = desk.nodes().get_opt(&desk.node_name()).await.unwrap();
    node.is_some_and(|it| [REQUESTED, REASON, REQUESTED_AT].iter().any(|key| it.annotations().contains_key(*key)))
}

async fn is_answered(desk: &Desk<'_>) {
    eventually("the request is cleared", SOON, async || !is_asked(desk).await).await;
}

/// Keeps the machine there, so that what happens meanwhile can be looked at.
async fn hold(desk: &Desk<'_>, removal: Removal) {
    let behaviour = Behaviour { removal, ..Behaviour::default() };
    testbed().await.fleet().await.provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), behaviour);
}

async fn release(desk: &Desk<'_>) {
    hold(desk, Behaviour::default().removal).await;
}

async fn is_given_back(desk: &Desk<'_>) -> ScheduledMachineStatus {
    let over = desk.reaches(Phase::Disabled).await;
    assert_eq!(desk.children().await, (false, false, false));
    assert!(!desk.get().await.spec.schedule.enabled, "it would come back by itself");
    let disabled = ("False".to_owned(), "EmergencyReclaimDisabledSchedule".to_owned());
    assert_eq!(condition(&over, "Scheduled"), disabled);
    over
}

/// Waits until so many reclaims have been counted: begun, begun again within the hour, and finished.
async fn are_counted(controller: &Controller, counts: [u8; 3]) {
    let port = controller.port("metrics").await;
    let lines: Vec<String> = ["begun", "again", "finished"]
        .iter()
        .zip(counts)
        .map(|(result, count)| format!("fivespot_emergency_reclaims_total{{result=\"{result}\"}} {count}"))
        .collect();
    eventually(&format!("{lines:?}"), SOON, async || {
        let page = get(port, "/metrics").await.1;
        if lines.iter().all(|line| page.lines().any(|it| it == line)) { Ok(()) } else { Err(page) }
    })
    .await;
}

fn count(status: &ScheduledMachineStatus) -> i64 {
    status.reclaim.as_ref().map_or(0, |it| it.count)
}

#[tokio::test]
async fn the_agent_is_had_on_the_node_while_its_owner_may_ask() {
    let (test, _controller) = a_cluster("agent").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    looked_after(&desk).await;
    let found = orders_of(&test.client).get(&orders_name(&desk)).await.unwrap();
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_eq!(found.owner_references()[0].uid, node.uid().unwrap(), "it goes with the Node");

    // What others take away or change is made good.
    orders_of(&test.client).delete(&orders_name(&desk), &DeleteParams::default()).await.unwrap();
    looked_after(&desk).await;
    let unlabel = json!({ "metadata": { "labels": { LABEL: null } } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&unlabel)).await.unwrap();
    looked_after(&desk).await;
    let tamper = json!({ "data": { "reclaim.toml": "match_commands = []", "more": "of it" } });
    orders_of(&test.client).patch(&orders_name(&desk), &PatchParams::default(), &Patch::Merge(&tamper)).await.unwrap();
    looked_after(&desk).await;
    let mended = orders_of(&test.client).get(&orders_name(&desk)).await.unwrap();
    assert_eq!(mended.data.unwrap().len(), 1);

    // An edit is passed on, and nothing is left when nobody may ask any more.
    desk.edit(&json!({ "spec": { "killIfCommands": ["/opt/\"idea\"/bin"] } })).await;
    let quoted = "match_commands = ['/opt/\"idea\"/bin']\nmatch_argv_substrings = ['/opt/\"idea\"/bin']\n";
    agent_is(&desk, &test.client, (true, Some(quoted))).await;
    desk.edit(&json!({ "spec": { "killIfCommands": null } })).await;
    agent_is(&desk, &test.client, (false, None)).await;
    ask(&desk).await;
    is_answered(&desk).await;
    assert_eq!(desk.status().await.phase, Some(Phase::Active), "what nobody may ask for is not given");
    test.close().await;
}

#[tokio::test]
async fn a_machine_is_given_back_at_once_and_in_order() {
    let testbed = testbed().await;
    let (test, _controller) = a_cluster("given back").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    looked_after(&desk).await;
    put_a_pod_that_stays(&desk).await;
    // The Node stays until all has been done about it.
    hold(&desk, Removal::Never).await;
    let mark = testbed.audit().mark();
    ask(&desk).await;
    is_answered(&desk).await;
    let pods: Api<Pod> = test.api();
    eventually("the pod is gone", SOON, async || pods.get_opt("web").await.unwrap().is_none()).await;
    agent_is(&desk, &test.client, (false, None)).await;
    let leaving = desk.reaches(Phase::EmergencyRemove).await;
    assert_eq!(condition(&leaving, "Ready"), ("False".to_owned(), "EmergencyReclaim".to_owned()));
    release(&desk).await;
    let over = is_given_back(&desk).await;
    let reclaim = over.reclaim.clone().unwrap();
    assert_eq!((reclaim.count, reclaim.reason.as_deref()), (1, Some("process-match: java")));
    assert!(reclaim.schedule_disabled && reclaim.requested_at.is_some());
    told_once(&desk, &["EmergencyReclaim", "EmergencyReclaimDisabledSchedule"]).await;

    testbed.audit().caught_up(&test.client).await;
    let node = desk.node_name();
    let writes = testbed.audit().since(mark).writes().succeeded();
    let writes = writes
        .filter(|it| it.user_agent.starts_with("5spot/") && (it.uri.contains(&test.name) || it.name.contains(&node)));
    let at = |verb: &str, resource: &str, subresource: &str| {
        let found = writes
            .0
            .iter()
            .position(|it| (&*it.verb, &*it.resource, &*it.subresource) == (verb, resource, subresource));
        found.unwrap_or_else(|| panic!("no {verb} of {resource} {subresource}: {:#?}", writes.0))
    };
    let cleared = writes.0.iter().rposition(|it| it.resource == "nodes").unwrap();
    let order = [
        at("patch", "scheduledmachines", "status"),
        at("patch", "machines", ""),
        at("delete", "machines", ""),
        at("patch", "scheduledmachines", ""),
        at("delete", "configmaps", ""),
        cleared,
    ];
    assert!(order.is_sorted(), "{order:?} {:#?}", writes.0);
    assert!(!writes.0.iter().any(|it| it.subresource == "eviction"), "nobody was asked");
    test.close().await;
}

#[tokio::test]
async fn a_program_that_goes_on_running_is_one_reclaim() {
    let (test, controller) = a_cluster("goes on").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    looked_after(&desk).await;
    hold(&desk, Removal::Never).await;
    ask(&desk).await;
    is_answered(&desk).await;
    // An agent that is still there finds it again, and again.
    for _ in 0..3 {
        ask(&desk).await;
        is_answered(&desk).await;
    }
    release(&desk).await;
    let over = is_given_back(&desk).await;
    assert_eq!(count(&over), 1);
    told_once(&desk, &["EmergencyReclaim", "EmergencyReclaimDisabledSchedule"]).await;
    let begun = controller.log().lines().filter(|it| it.contains("\"phase\":\"EmergencyRemove\"")).count();
    assert_eq!(begun, 1, "{}", controller.log());

    // Lent out again while it is still in use, it is given back again, and that can be seen.
    desk.edit(&json!({ "spec": { "schedule": { "enabled": true } } })).await;
    desk.runs().await;
    looked_after(&desk).await;
    ask(&desk).await;
    let over = desk.until("given back again", |it| it.phase == Some(Phase::Disabled) && count(it) == 2).await;
    assert_eq!(over.reclaim.unwrap().reason.as_deref(), Some("process-match: java"));
    let events: Api<k8s_openapi::api::events::v1::Event> = test.api();
    eventually("it is told that it is in use", SOON, async || {
        let notes: Vec<_> =
            events.list(&ListParams::default()).await.unwrap().items.into_iter().filter_map(|it| it.note).collect();
        if notes.iter().any(|it| it.contains("given back to its owner again")) { Ok(()) } else { Err(json!(notes)) }
    })
    .await;
    are_counted(&controller, [2, 1, 2]).await;
    test.close().await;
}

/// Whoever can write a Node can write more than an agent does, and still it is a request.
#[tokio::test]
async fn a_request_that_no_status_could_hold_is_a_request() {
    let (test, _controller) = a_cluster("too much").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    looked_after(&desk).await;
    ask_for(&desk, &"\u{1}".repeat(200_000), "-000001-01-01T00:00:00Z").await;
    let reclaim = is_given_back(&desk).await.reclaim.unwrap();
    assert!(reclaim.reason.unwrap().len() < 400 && reclaim.requested_at.is_none());
    test.close().await;
}

/// A machine whose pods have all the time they want.
fn patient() -> Value {
    json!({ "killIfCommands": ["java"], "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })
}

/// A pod that its budget keeps where it is.
async fn put_a_pod_that_stays(desk: &Desk<'_>) {
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&desk.test.client, &desk.test.name, "web", &json!({ "app": "web" })).await;
}

/// A machine with a pod that its budget keeps where it is.
async fn lend_with_a_pod_that_stays(desk: &Desk<'_>) {
    desk.create(&always(), &patient()).await;
    desk.runs().await;
    looked_after(desk).await;
    put_a_pod_that_stays(desk).await;
}

async fn is_held_up(desk: &Desk<'_>) {
    desk.until("held up", |it| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"))).await;
}

#[tokio::test]
async fn a_shutdown_becomes_an_eject() {
    let (test, _controller) = a_cluster("in a shutdown").await;
    let desk = Desk::new(&test, "desk-01");
    lend_with_a_pod_that_stays(&desk).await;
    desk.reschedule(&never()).await;
    is_held_up(&desk).await;
    looked_after(&desk).await;
    ask(&desk).await;
    assert_eq!(count(&is_given_back(&desk).await), 1);
    test.close().await;
}

#[tokio::test]
async fn a_deletion_becomes_an_eject() {
    let (test, controller) = a_cluster("in a deletion").await;
    let desk = Desk::new(&test, "desk-01");
    lend_with_a_pod_that_stays(&desk).await;
    desk.delete().await;
    is_held_up(&desk).await;
    hold(&desk, Removal::Never).await;
    ask(&desk).await;
    // Nothing is left on a Node that stays.
    is_answered(&desk).await;
    agent_is(&desk, &test.client, (false, None)).await;
    // It is a reclaim like any other, but for the schedule of an object that goes.
    let leaving = desk.until("told", |it| it.phase == Some(Phase::EmergencyRemove) && count(it) == 1).await;
    assert!(!leaving.reclaim.unwrap().schedule_disabled && desk.get().await.spec.schedule.enabled);
    told_once(&desk, &["EmergencyReclaim"]).await;
    release(&desk).await;
    desk.is_gone().await;
    assert_eq!(desk.children().await, (false, false, false));
    are_counted(&controller, [1, 0, 1]).await;
    test.close().await;
}

#[tokio::test]
async fn a_machine_that_is_only_held_is_given_back() {
    let (test, _controller) = a_cluster("while disabled").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    desk.edit(&json!({ "spec": { "schedule": { "enabled": false } } })).await;
    desk.reaches(Phase::Disabled).await;
    looked_after(&desk).await;
    ask(&desk).await;
    let over = desk.until("given back", |it| count(it) == 1 && it.phase == Some(Phase::Disabled)).await;
    assert_eq!(condition(&over, "Scheduled").1, "EmergencyReclaimDisabledSchedule");
    assert_eq!(desk.children().await, (false, false, false));
    test.close().await;
}

#[tokio::test]
async fn a_paused_cluster_does_not_keep_a_machine_from_its_owner() {
    let (test, _controller) = a_cluster("while paused").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    desk.runs().await;
    looked_after(&desk).await;
    let cluster =
        kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    let clusters = test.dynamic_api(&cluster);
    let pause = async |paused: bool| {
        let patch = json!({ "spec": { "paused": paused } });
        clusters.patch("edge", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    pause(true).await;
    desk.until("paused", |it| condition(it, "ReferencesValid").1 == "ClusterPaused").await;
    ask(&desk).await;
    is_answered(&desk).await;
    // Cluster API finishes nothing while it is paused; all that is ours to do is done.
    desk.reaches(Phase::EmergencyRemove).await;
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_some());
    assert!(!desk.get().await.spec.schedule.enabled);
    pause(false).await;
    assert_eq!(count(&is_given_back(&desk).await), 1);
    test.close().await;
}

#[tokio::test]
async fn in_another_cluster_the_agent_is_told_there() {
    let elsewhere = ControlPlane::start(ControlPlaneOptions::named("agent-elsewhere")).await.unwrap();
    let _kwok = fivespot_testbed::kwok::Kwok::start(&elsewhere).await.unwrap();
    let testbed = testbed().await;
    let test = testbed.namespace("agent elsewhere").await;
    testbed.cluster_on(&elsewhere, &test, "edge").await.unwrap();
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &java()).await;
    // Nobody has installed the agent there.
    let told = desk.until("told so", |it| condition(it, "Ready").1 == "Error").await;
    let message = told.message.unwrap();
    assert!(message.contains("there is no namespace 5spot-system in the cluster of the Node"), "{message}");
    assert_eq!(told.phase, Some(Phase::Active), "the machine itself is in the cluster");

    elsewhere.apply(&root().join("deploy/overlays/workload-cluster")).await.unwrap();
    agent_is(&desk, &elsewhere.client(), (true, Some(&orders("java")))).await;
    desk.runs().await;
    assert_eq!(agent(&desk, &test.client).await, (false, None), "here is nothing");
    let denied = testbed.audit().entries().by(CONTROLLER).in_namespace(&test.name).filter(|it| it.code == 403);
    assert!(denied.0.is_empty(), "{:#?}", denied.0);
    test.close().await;
}

/// A person writes for an agent what the controller would.
async fn write_orders(desk: &Desk<'_>) {
    let foreign: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": orders_name(desk) }, "data": { "reclaim.toml": "match_commands = [\"steam\"]" },
    }))
    .unwrap();
    orders_of(&desk.test.client).create(&PostParams::default(), &foreign).await.unwrap();
}

/// It is told that the agent cannot be told anything.
async fn is_not_looked_after(desk: &Desk<'_>) -> ScheduledMachineStatus {
    desk.until("told so", |it| condition(it, "Ready").1 == "Error").await
}

#[tokio::test]
async fn an_agent_that_cannot_be_had_holds_up_nothing_else() {
    let (test, _controller) = a_cluster("nothing else").await;
    let desk = Desk::new(&test, "desk-01");
    write_orders(&desk).await;
    desk.create(&always(), &patient()).await;
    is_not_looked_after(&desk).await;
    put_a_pod_that_stays(&desk).await;
    desk.reschedule(&never()).await;
    let says = |it: &ScheduledMachineStatus, what: &str| it.message.as_ref().is_some_and(|it| it.contains(what));
    let both = |it: &ScheduledMachineStatus| says(it, "draining: 1 of 1 pod left") && says(it, "its owner cannot");
    let leaving = desk.until("told both", both).await;
    assert_eq!(condition(&leaving, "Ready").1, "ShuttingDown");
    desk.edit(&json!({ "spec": { "nodeDrainTimeout": "1s" } })).await;
    desk.reaches(Phase::Inactive).await;
    told_once(&desk, &["DrainTimedOut"]).await;
    orders_of(&test.client).delete(&orders_name(&desk), &DeleteParams::default()).await.unwrap();
    test.close().await;
}

#[tokio::test]
async fn what_a_person_wrote_for_an_agent_is_not_overwritten() {
    let (test, _controller) = a_cluster("foreign orders").await;
    let desk = Desk::new(&test, "desk-01");
    write_orders(&desk).await;
    desk.create(&always(), &java()).await;
    let told = is_not_looked_after(&desk).await;
    assert!(told.message.unwrap().contains("which this controller did not write; delete it"));
    assert_eq!(agent(&desk, &test.client).await.1.as_deref(), Some("match_commands = [\"steam\"]"));
    // Nor is it taken away when nobody may ask any more.
    desk.edit(&json!({ "spec": { "killIfCommands": null } })).await;
    agent_is(&desk, &test.client, (false, Some("match_commands = [\"steam\"]"))).await;
    desk.edit(&json!({ "spec": { "killIfCommands": ["java"] } })).await;
    orders_of(&test.client).delete(&orders_name(&desk), &DeleteParams::default()).await.unwrap();
    desk.edit(&json!({ "metadata": { "annotations": { "example.com/look": "again" } } })).await;
    looked_after(&desk).await;
    desk.runs().await;
    test.close().await;
}

/// What is said of tools that apply manifests again and again.
#[tokio::test]
async fn a_manifest_that_leaves_enabled_out_can_be_applied_again() {
    let testbed = testbed().await;
    let (test, _controller) = a_cluster("applied again").await;
    for (name, how) in [("client-side", vec![]), ("server-side", vec!["--server-side", "--force-conflicts"])] {
        let desk = Desk::new(&test, name);
        let mut manifest = json!(desk.manifest(&always(), &java()));
        manifest["spec"]["schedule"].as_object_mut().unwrap().remove("enabled");
        manifest["metadata"]["namespace"] = json!(test.name);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        let apply = async || {
            let mut kubectl = testbed.control_plane().kubectl().unwrap();
            let output = kubectl.arg("apply").args(&how).arg("-f").arg(&file).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        apply().await;
        desk.runs().await;
        looked_after(&desk).await;
        ask(&desk).await;
        is_given_back(&desk).await;
        apply().await;
        assert!(!desk.get().await.spec.schedule.enabled, "{name}");
    }
    test.close().await;
}
