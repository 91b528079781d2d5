//! One schedule window, from its opening to its close.

use fivespot_api::Phase;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::fixtures::{
    Children, PhaseRecorder, assert_events_once, condition, messages, scheduled_machine, setup, wait_for, window,
};

#[tokio::test]
async fn machine_follows_its_window() {
    let (ns, controller) = setup("window").await;
    controller.wait_until_ready().await;
    let phases = PhaseRecorder::start(&ns);
    let sm = scheduled_machine(&ns, "desk-01").schedule(window(3600, 3600)).long_timeouts().create().await;

    let closed = sm.wait_for_phase(Phase::Inactive).await;
    assert_eq!(closed.in_schedule, Some(false));
    assert_eq!(condition(&closed, "Scheduled"), ("False", "ScheduleInactive"));
    assert!(closed.next_activation.is_some() && closed.next_cleanup.is_none());
    assert_eq!(sm.children().await, Children::NONE);

    let mut schedule = window(2, 3600);
    sm.set_schedule(&schedule).await;
    let open = sm.wait_until_running().await;
    assert_eq!(open.in_schedule, Some(true));
    assert!(open.next_cleanup.is_some() && open.last_scheduled_time.is_some());
    assert_eq!(open.observed_generation, sm.get().await.metadata.generation);
    for (type_, status, reason) in [
        ("Ready", "True", "MachineRunning"),
        ("Scheduled", "True", "ScheduleActive"),
        ("MachineReady", "True", "MachineReady"),
        ("ReferencesValid", "True", "Valid"),
    ] {
        assert_eq!(condition(&open, type_), (status, reason), "{open:#?}");
    }
    let machine = sm.machine().await.unwrap();
    let node = sm.node().await;
    let machine_ref = open.machine_ref.unwrap();
    assert_eq!(machine_ref.uid, machine.metadata.uid);
    assert_eq!((machine_ref.api_version.as_str(), machine_ref.kind.as_str()), ("cluster.x-k8s.io/v1beta2", "Machine"));
    assert_eq!(open.bootstrap_ref.unwrap().uid, sm.bootstrap().await.unwrap().metadata.uid);
    assert_eq!(open.infrastructure_ref.unwrap().uid, sm.infrastructure().await.unwrap().metadata.uid);
    let node_ref = open.node_ref.unwrap();
    assert_eq!((node_ref.name, node_ref.uid), (sm.node_name(), node.metadata.uid.clone()));
    assert_eq!(open.provider_id, node.spec.as_ref().unwrap().provider_id);
    assert_eq!(machine.metadata.labels.as_ref().unwrap()["cluster.x-k8s.io/cluster-name"], "edge");

    sm.create_blocked_pod("web").await;
    sm.create_pod("other").await;

    // The window closes in three seconds.
    schedule["overrides"][0]["until"] = json!((Timestamp::now() + SignedDuration::from_secs(3)).to_string());
    sm.set_schedule(&schedule).await;
    let blocked = messages::one_pod_blocked_by(&format!("{}/web", ns.name));
    let draining = sm.wait_for_message(&blocked).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown));
    assert!(draining.message.as_ref().unwrap().starts_with(messages::DRAINING), "{draining:#?}");
    assert!(draining.shutdown_started_at.is_some());
    assert!(sm.node_is_cordoned().await);
    wait_for("the pod without a PodDisruptionBudget is evicted", async || {
        ns.api::<Pod>().get_opt("other").await.unwrap().is_none()
    })
    .await;
    assert!(ns.api::<Pod>().get_opt("web").await.unwrap().is_some());
    assert!(sm.machine().await.unwrap().metadata.deletion_timestamp.is_none());

    sm.unblock_pod("web").await;
    let closed = sm.wait_for_phase(Phase::Inactive).await;
    assert_eq!(sm.children().await, Children::NONE);
    assert!(closed.machine_ref.is_none() && closed.bootstrap_ref.is_none() && closed.infrastructure_ref.is_none());
    assert!(closed.node_ref.is_none() && closed.provider_id.is_none() && closed.shutdown_started_at.is_none());
    assert!(sm.nodes().get_opt(&sm.node_name()).await.unwrap().is_none());
    assert_eq!(condition(&closed, "Ready"), ("False", "ScheduleInactive"));

    let transitions = [Phase::Inactive, Phase::Active, Phase::ShuttingDown, Phase::Inactive];
    wait_for("all phases are recorded", async || phases.transitions("desk-01") == transitions).await;
    // The log has one line per phase change.
    for change in transitions.windows(2) {
        let (from, to) = (change[0].as_str(), change[1].as_str());
        let object = format!("{}/desk-01", ns.name);
        let lines = controller.log_lines().iter().filter(|line| line.is_phase_change(&object, from, to)).count();
        assert_eq!(lines, 1, "{from} to {to}: {}", controller.log());
    }
    assert_events_once(&sm, &["MachineCreated", "ScheduleActivated", "ScheduleDeactivated", "MachineDeleted"]).await;
    ns.close().await;
}
