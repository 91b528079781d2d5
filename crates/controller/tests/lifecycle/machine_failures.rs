//! Machines that fail, disappear, or are marked for remediation.

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::provider::{Behaviour, Step};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::fixtures::{Children, TestMachine, condition, messages, scheduled_machine, setup, testbed, wait_for};

/// Waits until the machine runs with another Machine than the one with this uid.
async fn wait_until_recreated(sm: &TestMachine<'_>, uid: Option<&String>) -> ScheduledMachineStatus {
    sm.wait_until("recreated", |status| {
        condition(status, "Ready").0 == "True" && status.machine_ref.as_ref().is_some_and(|it| it.uid.as_ref() != uid)
    })
    .await
}

#[tokio::test]
async fn failed_machine_is_recreated() {
    let (ns, _controller) = setup("failed-machine").await;
    let provider = &testbed().await.fleet().await.provider;
    let fail = Step::Fail { reason: "NoPower".to_owned(), message: "the plug is out".to_owned() };
    provider.behave_in(&ns.name, Behaviour { infrastructure: fail, ..Behaviour::default() });
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let failed = sm.wait_for_message("the plug is out").await;
    assert_eq!(failed.phase, Some(Phase::Error), "{failed:#?}");
    // If Cluster API removes a Machine slowly, several may fail before the backoff becomes visible.
    let backoff = sm.wait_for_message(messages::RECREATED_AT).await;
    assert_eq!(backoff.phase, Some(Phase::Error));
    assert_eq!(sm.children().await, Children::NONE);
    provider.behave_in(&ns.name, Behaviour::default());
    sm.wait_until_running().await;
    ns.close().await;
}

#[tokio::test]
async fn machine_is_recreated_after_external_delete() {
    let (ns, _controller) = setup("deleted-machine").await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let first = sm.wait_until_running().await.machine_ref.unwrap().uid;
    sm.machines().delete(&sm.machine_name(), &DeleteParams::default()).await.unwrap();
    let second = wait_until_recreated(&sm, first.as_ref()).await;
    assert_eq!(second.phase, Some(Phase::Active));
    assert_eq!(second.machine_ref.unwrap().uid, sm.machine().await.unwrap().metadata.uid);
    ns.close().await;
}

#[tokio::test]
async fn machine_is_recreated_after_remediation_request() {
    let (ns, _controller) = setup("remediation").await;
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    let first = sm.wait_until_running().await.machine_ref.unwrap().uid;
    wait_for("the Machine is marked for remediation", async || {
        let mut machine = sm.machine().await.ok_or("no Machine")?;
        let conditions = machine.data["status"]["conditions"].as_array_mut().ok_or("no conditions")?;
        conditions.retain(|it| it["type"] != "OwnerRemediated");
        conditions.push(json!({
            "type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation",
            "message": "the kubelet is silent", "lastTransitionTime": jiff::Timestamp::now().to_string(),
        }));
        let replaced = sm.machines().replace_status(&sm.machine_name(), &PostParams::default(), &machine).await;
        replaced.map(drop).map_err(|_| "conflict")
    })
    .await;
    sm.wait_for_message("the kubelet is silent").await;
    wait_until_recreated(&sm, first.as_ref()).await;
    ns.close().await;
}
