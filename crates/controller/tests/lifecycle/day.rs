//! A full day of a machine, from the window's opening to its close, with everything real.

use crate::fixtures::{Desk, SOON, a_cluster, budget, condition, told_once, window};
use fivespot_api::Phase;
use fivespot_testbed::wait::eventually;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::{Value, json};

#[tokio::test]
async fn a_machine_comes_with_its_window_and_goes_gracefully_with_it() {
    let (test, controller) = a_cluster("day").await;
    controller.ready().await;
    let desk = Desk::new(&test, "desk-01");
    let timeouts = json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" });
    desk.create(&window(3600, 3600), &timeouts).await;

    let closed = desk.reaches(Phase::Inactive).await;
    assert_eq!(closed.in_schedule, Some(false));
    assert_eq!(condition(&closed, "Scheduled"), ("False".into(), "ScheduleInactive".into()));
    assert!(closed.next_activation.is_some() && closed.next_cleanup.is_none());
    assert_eq!(desk.children().await, (false, false, false));

    let mut schedule = window(2, 3600);
    desk.reschedule(&schedule).await;
    let open = desk.runs().await;
    let object = desk.get().await;
    assert_eq!(open.in_schedule, Some(true));
    assert!(open.next_cleanup.is_some() && open.last_scheduled_time.is_some());
    assert_eq!(open.observed_generation, object.metadata.generation);
    for (name, status, reason) in [
        ("Ready", "True", "MachineRunning"),
        ("Scheduled", "True", "ScheduleActive"),
        ("MachineReady", "True", "MachineReady"),
        ("ReferencesValid", "True", "Valid"),
    ] {
        assert_eq!(condition(&open, name), (status.into(), reason.into()), "{open:#?}");
    }
    let machine = desk.machine().await.unwrap();
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    let machine_ref = open.machine_ref.unwrap();
    assert_eq!(machine_ref.uid, machine.metadata.uid);
    assert_eq!((machine_ref.api_version.as_str(), machine_ref.kind.as_str()), ("cluster.x-k8s.io/v1beta2", "Machine"));
    assert_eq!(open.bootstrap_ref.unwrap().uid, desk.bootstrap().await.unwrap().metadata.uid);
    assert_eq!(open.infrastructure_ref.unwrap().uid, desk.infrastructure().await.unwrap().metadata.uid);
    let node_ref = open.node_ref.unwrap();
    assert_eq!((node_ref.name, node_ref.uid), (desk.node_name(), node.metadata.uid.clone()));
    assert_eq!(open.provider_id, node.spec.as_ref().unwrap().provider_id);
    assert_eq!(machine.metadata.labels.as_ref().unwrap()["cluster.x-k8s.io/cluster-name"], "edge");

    // Two pods, of which a budget lets none go.
    desk.pod("web-0", &json!({ "app": "web" })).await;
    desk.pod("other", &json!({})).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;

    // The window is cut short: it closes in a moment.
    schedule["overrides"][0]["until"] = json!((Timestamp::now() + SignedDuration::from_secs(3)).to_string());
    desk.reschedule(&schedule).await;
    let told = format!("1 blocked by PDB {}/web", test.name);
    let draining = desk.until("a budget is in the way", |it| it.message.as_ref().unwrap().contains(&told)).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown));
    assert!(draining.message.as_ref().unwrap().starts_with("draining: "), "{draining:#?}");
    assert!(draining.shutdown_started_at.is_some());
    let cordoned = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_eq!(cordoned.spec.unwrap().unschedulable, Some(true));
    eventually("the pod that no budget holds leaves", SOON, async || {
        test.api::<Pod>().get_opt("other").await.unwrap().is_none()
    })
    .await;
    assert!(test.api::<Pod>().get_opt("web-0").await.unwrap().is_some());
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_none());

    test.api::<PodDisruptionBudget>().delete("web", &DeleteParams::default()).await.unwrap();
    let over = desk.reaches(Phase::Inactive).await;
    assert_eq!(desk.children().await, (false, false, false));
    assert!(over.machine_ref.is_none() && over.bootstrap_ref.is_none() && over.infrastructure_ref.is_none());
    assert!(over.node_ref.is_none() && over.provider_id.is_none() && over.shutdown_started_at.is_none());
    assert!(desk.nodes().get_opt(&desk.node_name()).await.unwrap().is_none());
    assert_eq!(condition(&over, "Ready"), ("False".into(), "ScheduleInactive".into()));
    // Each transition is one line, with its object, phase and cause.
    let log = controller.log();
    for (from, phase) in
        [("Inactive", "Pending"), ("Pending", "Active"), ("Active", "ShuttingDown"), ("ShuttingDown", "Inactive")]
    {
        let is_told = |line: &Value| {
            line["message"] == "transition"
                && line["from"] == from
                && line["phase"] == phase
                && line["cause"] != ""
                && line["object"] == format!("{}/desk-01", test.name)
        };
        let lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok()).filter(is_told).count();
        assert_eq!(lines, 1, "{from} to {phase}: {log}");
    }
    told_once(&desk, &["MachineCreated", "ScheduleActivated", "ScheduleDeactivated", "MachineDeleted"]).await;
    test.close().await;
}
