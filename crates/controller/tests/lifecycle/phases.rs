//! Every phase with every request: each ends where the design says.

use std::collections::HashSet;

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::TestNamespace;
use futures::future::join_all;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

use crate::fixtures::{
    Children, TestMachine, always, assert_events_once, cluster_resource, condition, messages, never, request_reclaim,
    scheduled_machine, setup, wait_for, wait_until_reclaimable,
};

/// A state in which an object stays until another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The Cluster is paused.
    Pending,
    Active,
    /// A PDB blocks the drain.
    ShuttingDown,
    Inactive,
    /// Disabled while it was Active.
    Disabled,
    /// Disabled while it was Inactive.
    DisabledWithoutMachine,
    Terminated,
    /// The provider does not remove the machine.
    EmergencyRemove,
    /// The Cluster does not exist.
    Error,
    /// The spec became invalid while the object was Active.
    InvalidSpec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Delete,
    Kill,
    Revive,
    Disable,
    Enable,
    Open,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The object and its children no longer exist.
    Deleted,
    /// In this phase, with a running machine.
    Running(Phase),
    /// In this phase, without children.
    NoMachine(Phase),
    /// In this phase, with a machine whose removal is blocked.
    Blocked(Phase),
}

use End::{Blocked, Deleted, NoMachine, Running};

/// A request for what is already the case changes nothing.
const MATRIX: &[(Start, Request, End)] = &[
    (Start::Pending, Request::Delete, Deleted),
    (Start::Pending, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Pending, Request::Revive, NoMachine(Phase::Pending)),
    (Start::Pending, Request::Disable, NoMachine(Phase::Disabled)),
    (Start::Pending, Request::Enable, NoMachine(Phase::Pending)),
    (Start::Pending, Request::Open, NoMachine(Phase::Pending)),
    (Start::Pending, Request::Close, NoMachine(Phase::Inactive)),
    (Start::Active, Request::Delete, Deleted),
    (Start::Active, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Active, Request::Revive, Running(Phase::Active)),
    (Start::Active, Request::Disable, Running(Phase::Disabled)),
    (Start::Active, Request::Enable, Running(Phase::Active)),
    (Start::Active, Request::Open, Running(Phase::Active)),
    (Start::Active, Request::Close, NoMachine(Phase::Inactive)),
    (Start::ShuttingDown, Request::Delete, Blocked(Phase::ShuttingDown)),
    (Start::ShuttingDown, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::ShuttingDown, Request::Revive, Blocked(Phase::ShuttingDown)),
    (Start::ShuttingDown, Request::Disable, Running(Phase::Disabled)),
    (Start::ShuttingDown, Request::Enable, Blocked(Phase::ShuttingDown)),
    (Start::ShuttingDown, Request::Open, Running(Phase::Active)),
    (Start::ShuttingDown, Request::Close, Blocked(Phase::ShuttingDown)),
    (Start::Inactive, Request::Delete, Deleted),
    (Start::Inactive, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Inactive, Request::Revive, NoMachine(Phase::Inactive)),
    (Start::Inactive, Request::Disable, NoMachine(Phase::Disabled)),
    (Start::Inactive, Request::Enable, NoMachine(Phase::Inactive)),
    (Start::Inactive, Request::Open, Running(Phase::Active)),
    (Start::Inactive, Request::Close, NoMachine(Phase::Inactive)),
    (Start::Disabled, Request::Delete, Deleted),
    (Start::Disabled, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Disabled, Request::Revive, Running(Phase::Disabled)),
    (Start::Disabled, Request::Disable, Running(Phase::Disabled)),
    (Start::Disabled, Request::Enable, Running(Phase::Active)),
    (Start::Disabled, Request::Open, Running(Phase::Disabled)),
    (Start::Disabled, Request::Close, Running(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Request::Delete, Deleted),
    (Start::DisabledWithoutMachine, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::DisabledWithoutMachine, Request::Revive, NoMachine(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Request::Disable, NoMachine(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Request::Enable, NoMachine(Phase::Inactive)),
    (Start::DisabledWithoutMachine, Request::Open, NoMachine(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Request::Close, NoMachine(Phase::Disabled)),
    (Start::Terminated, Request::Delete, Deleted),
    (Start::Terminated, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Terminated, Request::Revive, Running(Phase::Active)),
    (Start::Terminated, Request::Disable, NoMachine(Phase::Terminated)),
    (Start::Terminated, Request::Enable, NoMachine(Phase::Terminated)),
    (Start::Terminated, Request::Open, NoMachine(Phase::Terminated)),
    (Start::Terminated, Request::Close, NoMachine(Phase::Terminated)),
    (Start::EmergencyRemove, Request::Delete, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Kill, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Revive, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Disable, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Enable, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Open, Blocked(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Request::Close, Blocked(Phase::EmergencyRemove)),
    (Start::Error, Request::Delete, Deleted),
    (Start::Error, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::Error, Request::Revive, NoMachine(Phase::Error)),
    (Start::Error, Request::Disable, NoMachine(Phase::Disabled)),
    (Start::Error, Request::Enable, NoMachine(Phase::Error)),
    (Start::Error, Request::Open, NoMachine(Phase::Error)),
    (Start::Error, Request::Close, NoMachine(Phase::Inactive)),
    (Start::InvalidSpec, Request::Delete, Deleted),
    (Start::InvalidSpec, Request::Kill, NoMachine(Phase::Terminated)),
    (Start::InvalidSpec, Request::Revive, Running(Phase::Error)),
    (Start::InvalidSpec, Request::Disable, Running(Phase::Disabled)),
    (Start::InvalidSpec, Request::Enable, Running(Phase::Error)),
    (Start::InvalidSpec, Request::Open, Running(Phase::Active)),
    (Start::InvalidSpec, Request::Close, NoMachine(Phase::Inactive)),
];

#[test]
fn matrix_is_complete() {
    let starts: HashSet<String> = MATRIX.iter().map(|(start, _, _)| format!("{start:?}")).collect();
    let requests: HashSet<String> = MATRIX.iter().map(|(_, request, _)| format!("{request:?}")).collect();
    let rows: HashSet<String> = MATRIX.iter().map(|(start, request, _)| format!("{start:?} {request:?}")).collect();
    assert_eq!(rows.len(), starts.len() * requests.len());
    assert_eq!(rows.len(), MATRIX.len());
    for phase in Phase::ALL {
        assert!(starts.contains(phase.as_str()), "the matrix does not start from {phase}");
    }
}

#[tokio::test]
async fn every_request_ends_as_designed() {
    let (ns, controller) = setup("phases").await;
    create_paused_cluster(&ns).await;
    controller.wait_until_ready().await;
    // In chunks, because the machines share a few cores.
    for rows in MATRIX.chunks(32) {
        join_all(rows.iter().map(|row| run(&ns, *row))).await;
    }
    ns.close().await;
}

async fn run(ns: &TestNamespace, (start, request, end): (Start, Request, End)) {
    let name = format!("{start:?}-{request:?}").to_lowercase();
    let sm = reach(ns, &name, start).await;
    let generation = sm.get().await.metadata.generation;
    match request {
        Request::Delete => sm.delete().await,
        Request::Kill => sm.set_kill_switch(true).await,
        Request::Revive => sm.set_kill_switch(false).await,
        Request::Disable => sm.set_enabled(false).await,
        Request::Enable => sm.set_enabled(true).await,
        Request::Open => sm.set_schedule(&always()).await,
        Request::Close => sm.set_schedule(&never()).await,
    }
    if let (Request::Delete, Blocked(_)) = (request, end) {
        // `wait_until_settled` relies on it.
        assert!(sm.get().await.metadata.generation > generation, "{name}: a deletion is not a new generation");
    }
    match end {
        Deleted => {
            sm.wait_until_deleted().await;
            assert_eq!(sm.children().await, Children::NONE, "{name}");
        }
        Running(phase) => {
            let status = wait_until_settled(&sm, phase).await;
            assert_eq!(sm.children().await, Children::ALL, "{name}");
            let machine = sm.machine().await.unwrap();
            assert!(machine.metadata.deletion_timestamp.is_none(), "{name}");
            let annotations = machine.metadata.annotations.unwrap_or_default();
            assert!(!annotations.keys().any(|key| key.contains("exclude")), "{name}: {annotations:?}");
            assert!(status.shutdown_started_at.is_none(), "{name}: {status:#?}");
            wait_for(&format!("{name}: the Node is schedulable"), async || {
                sm.nodes().get(&sm.node_name()).await.is_ok_and(|it| it.spec.unwrap().unschedulable != Some(true))
            })
            .await;
        }
        NoMachine(phase) => {
            let status = wait_until_settled(&sm, phase).await;
            assert_eq!(sm.children().await, Children::NONE, "{name}");
            assert!(status.machine_ref.is_none() && status.bootstrap_ref.is_none(), "{name}: {status:#?}");
            assert!(status.node_ref.is_none() && status.shutdown_started_at.is_none(), "{name}: {status:#?}");
        }
        Blocked(phase) => {
            wait_until_settled(&sm, phase).await;
            assert!(sm.machine().await.is_some(), "{name}");
        }
    }
    unblock_and_check(&sm, start, request).await;
}

/// Waits until the object is in this phase and the status reflects the current generation. A deletion is a new
/// generation, too.
async fn wait_until_settled(sm: &TestMachine<'_>, phase: Phase) -> ScheduledMachineStatus {
    wait_for(&format!("{} settles in {phase}", sm.name), async || {
        let object = sm.get().await;
        let status = object.status.unwrap_or_default();
        let is_current = status.observed_generation == object.metadata.generation;
        if is_current && status.phase == Some(phase) { Ok(status) } else { Err(json!(status)) }
    })
    .await
}

/// Creates an object and brings it into a state.
async fn reach<'a>(ns: &'a TestNamespace, name: &str, start: Start) -> TestMachine<'a> {
    let new = scheduled_machine(ns, name);
    match start {
        Start::Pending => {
            let sm = new.cluster("paused").create().await;
            sm.wait_for_phase(Phase::Pending).await;
            sm
        }
        Start::Active => new.create_running().await,
        Start::ShuttingDown => {
            let sm = new.long_timeouts().create_running().await;
            sm.create_blocked_pod(name).await;
            sm.set_schedule(&never()).await;
            sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
            sm
        }
        Start::Inactive => {
            let sm = new.schedule(never()).create().await;
            sm.wait_for_phase(Phase::Inactive).await;
            sm
        }
        Start::Disabled => {
            let sm = new.create_running().await;
            sm.set_enabled(false).await;
            sm.wait_for_phase(Phase::Disabled).await;
            sm
        }
        Start::DisabledWithoutMachine => {
            let sm = new.schedule(never()).disabled().create().await;
            sm.wait_for_phase(Phase::Disabled).await;
            sm
        }
        Start::Terminated => {
            let sm = new.kill_switch().create().await;
            sm.wait_for_phase(Phase::Terminated).await;
            sm
        }
        Start::EmergencyRemove => {
            let sm = new.kill_if_command("java").create().await;
            sm.block_removal().await;
            sm.wait_until_running().await;
            wait_until_reclaimable(&sm).await;
            request_reclaim(&sm).await;
            sm.wait_until("reclaimed", |status| {
                status.phase == Some(Phase::EmergencyRemove)
                    && status.reclaim.as_ref().is_some_and(|reclaim| reclaim.schedule_disabled)
            })
            .await;
            sm
        }
        Start::Error => {
            let sm = new.cluster("missing").create().await;
            let status = sm.wait_for_phase(Phase::Error).await;
            assert_eq!(condition(&status, "ReferencesValid"), ("False", "ClusterNotFound"));
            sm
        }
        Start::InvalidSpec => {
            let sm = new.create_running().await;
            sm.set_schedule(&json!({ "cron": "0 0 31 2-1 *" })).await;
            let status = sm.wait_for_phase(Phase::Error).await;
            assert_eq!(condition(&status, "Ready"), ("False", "InvalidSpec"));
            assert_eq!(condition(&status, "Scheduled"), ("False", "InvalidSchedule"));
            assert_eq!(sm.children().await, Children::ALL);
            sm
        }
    }
}

/// Removes what blocked the start state, and checks that the request completes.
async fn unblock_and_check(sm: &TestMachine<'_>, start: Start, request: Request) {
    match (start, request) {
        (Start::ShuttingDown, Request::Delete) => {
            sm.unblock_pod(&sm.name).await;
            sm.wait_until_deleted().await;
            assert_eq!(sm.children().await, Children::NONE);
        }
        (Start::ShuttingDown, Request::Open) => assert_events_once(sm, &["ShutdownCancelled"]).await,
        (Start::EmergencyRemove, _) => {
            sm.unblock_removal().await;
            match request {
                Request::Delete => sm.wait_until_deleted().await,
                Request::Kill => drop(sm.wait_for_phase(Phase::Terminated).await),
                // A later edit by a user overrides the reclaim.
                Request::Enable => drop(sm.wait_until_running().await),
                Request::Revive | Request::Disable | Request::Open | Request::Close => {
                    let status = sm.wait_for_phase(Phase::Disabled).await;
                    assert_eq!(condition(&status, "Scheduled"), ("False", "EmergencyReclaimDisabledSchedule"));
                    assert!(!sm.get().await.spec.schedule.enabled);
                    assert_eq!(sm.children().await, Children::NONE);
                }
            }
        }
        _ => {}
    }
}

/// Creates a paused Cluster without infrastructure: no Machine is ever created in it.
async fn create_paused_cluster(ns: &TestNamespace) {
    let cluster = DynamicObject::new("paused", &cluster_resource()).data(json!({ "spec": {
        "paused": true,
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "RemoteCluster", "name": "paused" },
    } }));
    ns.dynamic_api(&cluster_resource()).create(&PostParams::default(), &cluster).await.unwrap();
}
