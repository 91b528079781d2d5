//! Emergency reclaim: what a request on a Node leads to. The tests write the request as the agent does; the tests of the
//! agent run it on a real node.

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::TestNamespace;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::agent_rollout::{wait_until_removed, wait_until_rolled_out};
use crate::fixtures::{
    AGENT_LABEL, AGENT_MACHINE, Children, Controller, PhaseRecorder, TestMachine, assert_events_once, condition,
    event_notes, messages, never, request_reclaim, request_reclaim_with, scheduled_machine, sent_by_controller,
    set_cluster_paused, setup, testbed, wait_for, wait_until_reclaimable, wait_until_request_is_cleared,
};

/// Creates a running machine with the agent rolled out to its Node.
async fn create_reclaimable<'a>(ns: &'a TestNamespace, name: &str) -> TestMachine<'a> {
    let sm = scheduled_machine(ns, name).kill_if_command("java").create_running().await;
    wait_until_rolled_out(&sm).await;
    sm
}

/// Creates a reclaimable machine whose drain is blocked by a PDB.
async fn create_reclaimable_with_blocked_pod<'a>(ns: &'a TestNamespace, name: &str) -> TestMachine<'a> {
    let sm = scheduled_machine(ns, name).kill_if_command("java").long_timeouts().create_running().await;
    wait_until_rolled_out(&sm).await;
    sm.create_blocked_pod("web").await;
    sm
}

async fn wait_until_reclaimed(sm: &TestMachine<'_>) -> ScheduledMachineStatus {
    let status = sm.wait_for_phase(Phase::Disabled).await;
    assert_eq!(sm.children().await, Children::NONE);
    assert!(!sm.get().await.spec.schedule.enabled, "the machine would be created again");
    assert_eq!(condition(&status, "Scheduled"), ("False", "EmergencyReclaimDisabledSchedule"));
    status
}

/// Waits until the metrics show this many reclaims: started, repeated within an hour, and completed.
async fn wait_for_reclaim_counts(controller: &Controller, counts: [u8; 3]) {
    let lines: Vec<String> = ["started", "repeated", "completed"]
        .iter()
        .zip(counts)
        .map(|(result, count)| format!("fivespot_emergency_reclaims_total{{result=\"{result}\"}} {count}"))
        .collect();
    wait_for(&format!("{lines:?}"), async || {
        let page = controller.metrics().await;
        if lines.iter().all(|line| page.lines().any(|it| it == line)) { Ok(()) } else { Err(page) }
    })
    .await;
}

fn reclaim_count(status: &ScheduledMachineStatus) -> i64 {
    status.reclaim.as_ref().map_or(0, |reclaim| reclaim.count)
}

#[tokio::test]
async fn reclaim_writes_in_order_and_without_eviction() {
    let testbed = testbed().await;
    let (ns, _controller) = setup("reclaim").await;
    let sm = create_reclaimable(&ns, "desk-01").await;
    sm.create_blocked_pod("web").await;
    // The Node remains until the controller has finished with it.
    sm.block_removal().await;
    let mark = testbed.audit().mark();
    request_reclaim(&sm).await;
    wait_until_request_is_cleared(&sm).await;
    let pods: Api<Pod> = ns.api();
    wait_for("the pod is deleted", async || pods.get_opt("web").await.unwrap().is_none()).await;
    wait_until_removed(&sm).await;
    let in_progress = sm.wait_for_phase(Phase::EmergencyRemove).await;
    assert_eq!(condition(&in_progress, "Ready"), ("False", "EmergencyReclaim"));
    sm.unblock_removal().await;
    let reclaim = wait_until_reclaimed(&sm).await.reclaim.unwrap();
    assert_eq!((reclaim.count, reclaim.reason.as_deref()), (1, Some("process-match: java")));
    assert!(reclaim.schedule_disabled && reclaim.requested_at.is_some());
    assert_events_once(&sm, &["EmergencyReclaim", "EmergencyReclaimDisabledSchedule"]).await;

    testbed.audit().caught_up(&ns.client).await;
    let node = sm.node_name();
    let writes = testbed.audit().since(mark).writes().succeeded().filter(sent_by_controller);
    let writes = writes.filter(|it| it.uri.contains(&ns.name) || it.name.contains(&node)).0;
    let first = |verb: &str, target: &str| {
        let found = writes.iter().position(|it| it.verb == verb && it.target() == target);
        found.unwrap_or_else(|| panic!("no {verb} {target}: {writes:#?}"))
    };
    let order = [
        first("patch", "scheduledmachines/status"),
        first("patch", "machines"),
        first("delete", "machines"),
        first("patch", "scheduledmachines"),
        first("delete", "configmaps"),
        // The last write to the Node clears the request.
        writes.iter().rposition(|it| it.resource == "nodes").unwrap(),
    ];
    assert!(order.is_sorted(), "{order:?} {writes:#?}");
    assert!(!writes.iter().any(|it| it.subresource == "eviction"), "{writes:#?}");
    ns.close().await;
}

#[tokio::test]
async fn repeated_requests_are_one_reclaim() {
    let (ns, controller) = setup("repeated-reclaim").await;
    let phases = PhaseRecorder::start(&ns);
    let sm = create_reclaimable(&ns, "desk-01").await;
    sm.block_removal().await;
    request_reclaim(&sm).await;
    wait_until_request_is_cleared(&sm).await;
    // The process still runs, so an agent that has not been removed yet finds it again.
    for _ in 0..3 {
        request_reclaim(&sm).await;
        wait_until_request_is_cleared(&sm).await;
    }
    sm.unblock_removal().await;
    let reclaimed = wait_until_reclaimed(&sm).await;
    assert_eq!(reclaim_count(&reclaimed), 1);
    assert_events_once(&sm, &["EmergencyReclaim", "EmergencyReclaimDisabledSchedule"]).await;
    let transitions = phases.transitions("desk-01");
    let begun = transitions.iter().filter(|phase| **phase == Phase::EmergencyRemove).count();
    assert_eq!(begun, 1, "{transitions:?}");
    wait_for_reclaim_counts(&controller, [1, 0, 1]).await;

    // Enabled while the owner still uses it, the machine is reclaimed again, and an event says so.
    sm.set_enabled(true).await;
    sm.wait_until_running().await;
    wait_until_rolled_out(&sm).await;
    request_reclaim(&sm).await;
    let reclaimed = sm
        .wait_until("reclaimed again", |status| status.phase == Some(Phase::Disabled) && reclaim_count(status) == 2)
        .await;
    assert_eq!(reclaimed.reclaim.unwrap().reason.as_deref(), Some("process-match: java"));
    wait_for("the event says that the machine was reclaimed again", async || {
        let notes = event_notes(&sm).await;
        if notes.iter().any(|note| note.contains(messages::RECLAIMED_AGAIN)) { Ok(()) } else { Err(json!(notes)) }
    })
    .await;
    wait_for_reclaim_counts(&controller, [2, 1, 2]).await;
    ns.close().await;
}

/// Any client that may write the Node can write a reason and a time that do not fit into the status.
#[tokio::test]
async fn oversized_request_is_honoured() {
    let (ns, _controller) = setup("oversized-request").await;
    let sm = create_reclaimable(&ns, "desk-01").await;
    request_reclaim_with(&sm, &"\u{1}".repeat(200_000), "-000001-01-01T00:00:00Z").await;
    let reclaim = wait_until_reclaimed(&sm).await.reclaim.unwrap();
    assert!(reclaim.reason.unwrap().len() < 400 && reclaim.requested_at.is_none());
    ns.close().await;
}

#[tokio::test]
async fn request_left_by_earlier_machine_is_cleared_and_later_one_counts() {
    let testbed = testbed().await;
    let (ns, mut controller) = setup("old-request").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    controller.stop().await;
    // What a provider that keeps the Node leaves on it, with a time in the future: the owner's clock is wrong.
    let earlier = json!({ "labels": { AGENT_LABEL: "enabled" }, "annotations": { AGENT_MACHINE: "earlier" } });
    sm.patch_node(&json!({ "metadata": earlier })).await;
    request_reclaim_with(&sm, "process-match: java", "2037-01-01T00:00:00Z").await;
    sm.patch(&json!({ "spec": { "killIfCommands": ["java"] } })).await;
    let uid = sm.machine().await.unwrap().uid();
    let _controller = Controller::start(testbed, &ns).await;
    wait_until_reclaimable(&sm).await;
    wait_until_rolled_out(&sm).await;
    wait_until_request_is_cleared(&sm).await;
    let status = sm.wait_until_running().await;
    assert_eq!((status.phase, status.reclaim), (Some(Phase::Active), None));
    assert_eq!(sm.machine().await.unwrap().uid(), uid);
    assert!(sm.get().await.spec.schedule.enabled, "the old request disabled the schedule");

    // A request from now on counts, although the owner's clock is hours behind.
    request_reclaim_with(&sm, "process-match: java", "2001-01-01T00:00:00Z").await;
    assert_eq!(reclaim_count(&wait_until_reclaimed(&sm).await), 1);
    ns.close().await;
}

#[tokio::test]
async fn reclaim_during_shutdown_forces_removal() {
    let (ns, _controller) = setup("reclaim-in-shutdown").await;
    let sm = create_reclaimable_with_blocked_pod(&ns, "desk-01").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
    wait_until_rolled_out(&sm).await;
    request_reclaim(&sm).await;
    assert_eq!(reclaim_count(&wait_until_reclaimed(&sm).await), 1);
    ns.close().await;
}

#[tokio::test]
async fn reclaim_during_deletion_forces_removal() {
    let (ns, controller) = setup("reclaim-in-deletion").await;
    let sm = create_reclaimable_with_blocked_pod(&ns, "desk-01").await;
    sm.delete().await;
    sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
    sm.block_removal().await;
    request_reclaim(&sm).await;
    // The Node remains, but without request and agent.
    wait_until_request_is_cleared(&sm).await;
    wait_until_removed(&sm).await;
    let in_progress = sm
        .wait_until("reclaimed", |status| status.phase == Some(Phase::EmergencyRemove) && reclaim_count(status) == 1)
        .await;
    // The schedule of an object that is being deleted is not disabled.
    assert!(!in_progress.reclaim.unwrap().schedule_disabled && sm.get().await.spec.schedule.enabled);
    assert_events_once(&sm, &["EmergencyReclaim"]).await;
    sm.unblock_removal().await;
    sm.wait_until_deleted().await;
    assert_eq!(sm.children().await, Children::NONE);
    wait_for_reclaim_counts(&controller, [1, 0, 1]).await;
    ns.close().await;
}

#[tokio::test]
async fn disabled_machine_can_be_reclaimed() {
    let (ns, _controller) = setup("reclaim-disabled").await;
    let sm = scheduled_machine(&ns, "desk-01").kill_if_command("java").create_running().await;
    sm.set_enabled(false).await;
    sm.wait_for_phase(Phase::Disabled).await;
    wait_until_rolled_out(&sm).await;
    request_reclaim(&sm).await;
    let reclaimed =
        sm.wait_until("reclaimed", |status| reclaim_count(status) == 1 && status.phase == Some(Phase::Disabled)).await;
    assert_eq!(condition(&reclaimed, "Scheduled").1, "EmergencyReclaimDisabledSchedule");
    assert_eq!(sm.children().await, Children::NONE);
    ns.close().await;
}

#[tokio::test]
async fn machine_of_paused_cluster_can_be_reclaimed() {
    let (ns, _controller) = setup("reclaim-paused").await;
    let sm = create_reclaimable(&ns, "desk-01").await;
    set_cluster_paused(&ns, true).await;
    sm.wait_until("paused", |status| condition(status, "ReferencesValid").1 == "ClusterPaused").await;
    request_reclaim(&sm).await;
    wait_until_request_is_cleared(&sm).await;
    // The controller has done its part; Cluster API removes the Machine after the Cluster is resumed.
    sm.wait_for_phase(Phase::EmergencyRemove).await;
    assert!(sm.machine_is_terminating().await);
    assert!(!sm.get().await.spec.schedule.enabled);
    set_cluster_paused(&ns, false).await;
    assert_eq!(reclaim_count(&wait_until_reclaimed(&sm).await), 1);
    ns.close().await;
}

/// Flux and Argo CD apply the same manifest repeatedly.
#[tokio::test]
async fn reapplied_manifest_without_enabled_does_not_undo_reclaim() {
    let testbed = testbed().await;
    let (ns, _controller) = setup("reapplied").await;
    for (name, args) in [("client-side", vec![]), ("server-side", vec!["--server-side", "--force-conflicts"])] {
        let mut manifest = json!(scheduled_machine(&ns, name).kill_if_command("java").manifest());
        manifest["spec"]["schedule"].as_object_mut().unwrap().remove("enabled");
        manifest["metadata"]["namespace"] = json!(ns.name);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("manifest.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        let apply = || {
            let mut kubectl = testbed.control_plane().kubectl().unwrap();
            let output = kubectl.arg("apply").args(&args).arg("-f").arg(&file).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        apply();
        let sm = TestMachine::new(&ns, name);
        sm.wait_until_running().await;
        wait_until_rolled_out(&sm).await;
        request_reclaim(&sm).await;
        wait_until_reclaimed(&sm).await;
        apply();
        assert!(!sm.get().await.spec.schedule.enabled, "{name}");
    }
    ns.close().await;
}
