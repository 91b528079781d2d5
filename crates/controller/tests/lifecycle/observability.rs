//! What operators use to follow one reconcile: the log level at run time, and ids in the log and in events.

use fivespot_api::{Phase, keys};
use kube::ResourceExt as _;

use crate::fixtures::{
    Controller, Endpoint, LogLine, TestMachine, events, scheduled_machine, setup, wait_for, wait_for_events,
};

/// Changes what is logged, and returns the HTTP status and the filter afterwards.
async fn set_log_level(controller: &Controller, filter: &str) -> (u16, String) {
    let response = controller.put(Endpoint::Health, "/loglevel", filter).await;
    if response.code != 200 {
        assert!(response.body.contains("write for example"), "no remedy: {}", response.body);
    }
    (response.code, controller.get(Endpoint::Health, "/loglevel").await.body.trim().to_owned())
}

fn debug_lines(controller: &Controller) -> usize {
    controller.log_lines().iter().filter(|line| line.is_debug()).count()
}

#[tokio::test]
async fn log_level_changes_without_restart() {
    let (ns, controller) = setup("log-level").await;
    controller.wait_until_ready().await;
    let sm = scheduled_machine(&ns, "desk-01").disabled().create().await;
    sm.wait_for_phase(Phase::Disabled).await;
    assert_eq!(debug_lines(&controller), 0, "{}", controller.log());

    assert_eq!(set_log_level(&controller, "debug").await, (200, "debug".to_owned()));
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    wait_for("debug lines are logged", async || debug_lines(&controller) > 0).await;
    let of_libraries = controller.log_lines().iter().filter(|line| line.is_of_target("kube_")).count();
    assert_eq!(of_libraries, 0, "kube logs what servers of tenants send: {}", controller.log());

    // An invalid filter changes nothing.
    for invalid in ["inof", "5spot=loud", "info,=x="] {
        assert_eq!(set_log_level(&controller, invalid).await, (400, "debug".to_owned()));
    }

    // Only the reconciles of one object.
    let other = scheduled_machine(&ns, "desk-02").disabled().create().await;
    other.wait_for_phase(Phase::Disabled).await;
    let object = |sm: &TestMachine<'_>| format!("{}/{}", ns.name, sm.name);
    let filter = format!("info,[reconcile{{scheduledmachine={}}}]=debug", object(&other));
    assert_eq!(set_log_level(&controller, &filter).await, (200, filter));
    let debug_lines_of = |sm: &TestMachine<'_>| {
        let lines = controller.log_lines();
        lines.iter().filter(|line| line.is_debug() && line.is_about(&object(sm))).count()
    };
    let before = [&sm, &other].map(debug_lines_of);
    sm.set_kill_switch(false).await;
    other.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Disabled).await;
    other.wait_for_phase(Phase::Terminated).await;
    wait_for("debug lines of the other object are logged", async || debug_lines_of(&other) > before[1]).await;
    assert_eq!(debug_lines_of(&sm), before[0], "{}", controller.log());

    // An empty one restores that of the start.
    assert_eq!(set_log_level(&controller, "").await, (200, "info".to_owned()));
    let before = debug_lines(&controller);
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    assert_eq!(debug_lines(&controller), before, "{}", controller.log());
    let changes = controller.log_lines().iter().filter(|line| line.is_message("Changed log filter")).count();
    assert_eq!(changes, 3, "{}", controller.log());
    ns.close().await;
}

#[tokio::test]
async fn event_names_the_reconcile_in_the_log() {
    let (ns, controller) = setup("reconcile-id").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    sm.set_kill_switch(true).await;
    wait_for_events(&sm, &["MachineCreated", "KillSwitchActivated"]).await;
    let object = format!("{}/{}", ns.name, sm.name);
    let (events, lines) = (events(&sm).await, controller.log_lines());
    for event in &events {
        let id = event.annotations().get(keys::RECONCILE_ID_ANNOTATION).unwrap_or_else(|| panic!("{event:#?}"));
        let is_logged = lines.iter().any(|line: &LogLine| line.is_of_reconcile(&object, id));
        assert!(is_logged, "{id} of event {:?} is not in the log: {}", event.reason, controller.log());
    }
    let id_of = |reason: &str| {
        let event = events.iter().find(|event| event.reason.as_deref() == Some(reason)).unwrap();
        event.annotations()[keys::RECONCILE_ID_ANNOTATION].clone()
    };
    assert_ne!(id_of("MachineCreated"), id_of("KillSwitchActivated"), "they are of two reconciles");
    ns.close().await;
}
