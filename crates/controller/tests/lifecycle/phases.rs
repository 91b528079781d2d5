//! Every phase, and everything that can be asked for in it: it ends where the design says.

use crate::fixtures::{Controller, Desk, SOON, always, budget, condition, never, testbed, told_once};
use std::collections::HashSet;

use fivespot_api::{Phase, keys};
use fivespot_testbed::provider::{Behaviour, Removal};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{TestNamespace, Testbed};
use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// A phase in which a machine stays until somebody asks for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Its Cluster is paused.
    Pending,
    Active,
    /// A budget lets its pod not go.
    ShuttingDown,
    Inactive,
    /// Disabled while it was Active.
    Disabled,
    /// Disabled while it was Inactive.
    DisabledWithoutMachine,
    Terminated,
    /// The provider does not let it go.
    EmergencyRemove,
    /// There is no such Cluster.
    Error,
    /// Its spec became invalid while it was Active.
    InvalidSpec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Delete,
    Kill,
    Revive,
    Disable,
    Enable,
    Open,
    Close,
}

/// What there is in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Gone,
    /// The phase, and a machine that runs.
    With(Phase),
    /// The phase, and nothing of a machine.
    Without(Phase),
    /// The phase, and a machine on its way out that does not get further.
    Stuck(Phase),
}

use End::{Gone, Stuck, With, Without};

/// Each phase, what is asked for, and where that ends. What a person asks for that is so already changes nothing.
const TABLE: &[(Start, Ask, End)] = &[
    (Start::Pending, Ask::Delete, Gone),
    (Start::Pending, Ask::Kill, Without(Phase::Terminated)),
    (Start::Pending, Ask::Revive, Without(Phase::Pending)),
    (Start::Pending, Ask::Disable, Without(Phase::Disabled)),
    (Start::Pending, Ask::Enable, Without(Phase::Pending)),
    (Start::Pending, Ask::Open, Without(Phase::Pending)),
    (Start::Pending, Ask::Close, Without(Phase::Inactive)),
    (Start::Active, Ask::Delete, Gone),
    (Start::Active, Ask::Kill, Without(Phase::Terminated)),
    (Start::Active, Ask::Revive, With(Phase::Active)),
    (Start::Active, Ask::Disable, With(Phase::Disabled)),
    (Start::Active, Ask::Enable, With(Phase::Active)),
    (Start::Active, Ask::Open, With(Phase::Active)),
    (Start::Active, Ask::Close, Without(Phase::Inactive)),
    (Start::ShuttingDown, Ask::Delete, Stuck(Phase::ShuttingDown)),
    (Start::ShuttingDown, Ask::Kill, Without(Phase::Terminated)),
    (Start::ShuttingDown, Ask::Revive, Stuck(Phase::ShuttingDown)),
    (Start::ShuttingDown, Ask::Disable, With(Phase::Disabled)),
    (Start::ShuttingDown, Ask::Enable, Stuck(Phase::ShuttingDown)),
    (Start::ShuttingDown, Ask::Open, With(Phase::Active)),
    (Start::ShuttingDown, Ask::Close, Stuck(Phase::ShuttingDown)),
    (Start::Inactive, Ask::Delete, Gone),
    (Start::Inactive, Ask::Kill, Without(Phase::Terminated)),
    (Start::Inactive, Ask::Revive, Without(Phase::Inactive)),
    (Start::Inactive, Ask::Disable, Without(Phase::Disabled)),
    (Start::Inactive, Ask::Enable, Without(Phase::Inactive)),
    (Start::Inactive, Ask::Open, With(Phase::Active)),
    (Start::Inactive, Ask::Close, Without(Phase::Inactive)),
    (Start::Disabled, Ask::Delete, Gone),
    (Start::Disabled, Ask::Kill, Without(Phase::Terminated)),
    (Start::Disabled, Ask::Revive, With(Phase::Disabled)),
    (Start::Disabled, Ask::Disable, With(Phase::Disabled)),
    (Start::Disabled, Ask::Enable, With(Phase::Active)),
    (Start::Disabled, Ask::Open, With(Phase::Disabled)),
    (Start::Disabled, Ask::Close, With(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Ask::Delete, Gone),
    (Start::DisabledWithoutMachine, Ask::Kill, Without(Phase::Terminated)),
    (Start::DisabledWithoutMachine, Ask::Revive, Without(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Ask::Disable, Without(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Ask::Enable, Without(Phase::Inactive)),
    (Start::DisabledWithoutMachine, Ask::Open, Without(Phase::Disabled)),
    (Start::DisabledWithoutMachine, Ask::Close, Without(Phase::Disabled)),
    (Start::Terminated, Ask::Delete, Gone),
    (Start::Terminated, Ask::Kill, Without(Phase::Terminated)),
    (Start::Terminated, Ask::Revive, With(Phase::Active)),
    (Start::Terminated, Ask::Disable, Without(Phase::Terminated)),
    (Start::Terminated, Ask::Enable, Without(Phase::Terminated)),
    (Start::Terminated, Ask::Open, Without(Phase::Terminated)),
    (Start::Terminated, Ask::Close, Without(Phase::Terminated)),
    (Start::EmergencyRemove, Ask::Delete, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Kill, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Revive, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Disable, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Enable, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Open, Stuck(Phase::EmergencyRemove)),
    (Start::EmergencyRemove, Ask::Close, Stuck(Phase::EmergencyRemove)),
    (Start::Error, Ask::Delete, Gone),
    (Start::Error, Ask::Kill, Without(Phase::Terminated)),
    (Start::Error, Ask::Revive, Without(Phase::Error)),
    (Start::Error, Ask::Disable, Without(Phase::Disabled)),
    (Start::Error, Ask::Enable, Without(Phase::Error)),
    (Start::Error, Ask::Open, Without(Phase::Error)),
    (Start::Error, Ask::Close, Without(Phase::Inactive)),
    (Start::InvalidSpec, Ask::Delete, Gone),
    (Start::InvalidSpec, Ask::Kill, Without(Phase::Terminated)),
    (Start::InvalidSpec, Ask::Revive, With(Phase::Error)),
    (Start::InvalidSpec, Ask::Disable, With(Phase::Disabled)),
    (Start::InvalidSpec, Ask::Enable, With(Phase::Error)),
    (Start::InvalidSpec, Ask::Open, With(Phase::Active)),
    (Start::InvalidSpec, Ask::Close, Without(Phase::Inactive)),
];

#[test]
fn the_table_has_every_phase_with_everything_that_can_be_asked_for() {
    let starts: HashSet<String> = TABLE.iter().map(|(start, _, _)| format!("{start:?}")).collect();
    let asks: HashSet<String> = TABLE.iter().map(|(_, ask, _)| format!("{ask:?}")).collect();
    let rows: HashSet<String> = TABLE.iter().map(|(start, ask, _)| format!("{start:?} {ask:?}")).collect();
    assert_eq!(rows.len(), starts.len() * asks.len());
    assert_eq!(rows.len(), TABLE.len());
    for phase in Phase::ALL {
        assert!(starts.contains(phase.as_str()), "{phase} is no start");
    }
}

#[tokio::test]
async fn every_phase_ends_where_the_design_says_whatever_is_asked_for() {
    let testbed = testbed().await;
    let test = testbed.namespace("phases").await;
    testbed.cluster(&test, "edge").await.unwrap();
    paused_cluster(&test).await;
    let controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    // A few at a time: there are only so many cores.
    for some in TABLE.chunks(32) {
        join_all(some.iter().map(|row| one(testbed, &test, *row))).await;
    }
    test.close().await;
}

async fn one(testbed: &Testbed, test: &TestNamespace, (start, ask, end): (Start, Ask, End)) {
    let name = format!("{start:?}-{ask:?}").to_lowercase();
    let desk = Desk::new(test, &name);
    begin(testbed, &desk, start).await;
    let before = desk.get().await.metadata.generation;
    match ask {
        Ask::Delete => desk.delete().await,
        Ask::Kill => desk.edit(&json!({ "spec": { "killSwitch": true } })).await,
        Ask::Revive => desk.edit(&json!({ "spec": { "killSwitch": false } })).await,
        Ask::Disable => desk.edit(&json!({ "spec": { "schedule": { "enabled": false } } })).await,
        Ask::Enable => desk.edit(&json!({ "spec": { "schedule": { "enabled": true } } })).await,
        Ask::Open => desk.reschedule(&always()).await,
        Ask::Close => desk.reschedule(&never()).await,
    }
    if let (Ask::Delete, Stuck(_)) = (ask, end) {
        assert!(desk.get().await.metadata.generation > before, "{name}: nothing could be waited for");
    }
    match end {
        Gone => {
            desk.is_gone().await;
            assert_eq!(desk.children().await, (false, false, false), "{name}");
        }
        With(phase) => {
            let status = seen(&desk, phase).await;
            assert_eq!(desk.children().await, (true, true, true), "{name}");
            let machine = desk.machine().await.unwrap();
            assert!(machine.metadata.deletion_timestamp.is_none(), "{name}");
            assert!(
                !machine.metadata.annotations.unwrap_or_default().keys().any(|it| it.contains("exclude")),
                "{name}"
            );
            assert!(status.shutdown_started_at.is_none(), "{name}: {status:#?}");
            eventually(&format!("{name}: its Node takes pods"), SOON, async || {
                desk.nodes().get(&desk.node_name()).await.is_ok_and(|it| it.spec.unwrap().unschedulable != Some(true))
            })
            .await;
        }
        Without(phase) => {
            let status = seen(&desk, phase).await;
            assert_eq!(desk.children().await, (false, false, false), "{name}");
            assert!(status.machine_ref.is_none() && status.bootstrap_ref.is_none(), "{name}: {status:#?}");
            assert!(status.node_ref.is_none() && status.shutdown_started_at.is_none(), "{name}: {status:#?}");
        }
        Stuck(phase) => {
            seen(&desk, phase).await;
            assert!(desk.machine().await.is_some(), "{name}");
        }
    }
    finish(testbed, &desk, start, ask).await;
}

/// Waits for the phase, as an answer to the spec as it is now.
async fn seen(desk: &Desk<'_>, phase: Phase) -> fivespot_api::ScheduledMachineStatus {
    eventually(&format!("{} is {phase} for good", desk.name), SOON, async || {
        let object = desk.get().await;
        let status = object.status.clone().unwrap_or_default();
        // A deletion counts as an edit: the API server gives the object a new generation.
        let answered = status.observed_generation == object.metadata.generation;
        if answered && status.phase == Some(phase) { Ok(status) } else { Err(json!(status)) }
    })
    .await
}

async fn begin(testbed: &Testbed, desk: &Desk<'_>, start: Start) {
    let long = json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" });
    match start {
        Start::Pending => {
            desk.create(&always(), &json!({ "clusterName": "paused" })).await;
            desk.reaches(Phase::Pending).await;
        }
        Start::Active => {
            desk.create(&always(), &json!({})).await;
            desk.runs().await;
        }
        Start::ShuttingDown => {
            desk.create(&always(), &long).await;
            desk.runs().await;
            desk.pod(desk.name, &json!({ "held-in": desk.name })).await;
            budget(&desk.test.client, &desk.test.name, desk.name, &json!({ "held-in": desk.name })).await;
            desk.reschedule(&never()).await;
            desk.until("held", |it| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"))).await;
        }
        Start::Inactive => {
            desk.create(&never(), &json!({})).await;
            desk.reaches(Phase::Inactive).await;
        }
        Start::Disabled => {
            desk.create(&always(), &json!({})).await;
            desk.runs().await;
            desk.edit(&json!({ "spec": { "schedule": { "enabled": false } } })).await;
            desk.reaches(Phase::Disabled).await;
        }
        Start::DisabledWithoutMachine => {
            let mut schedule = never();
            schedule["enabled"] = json!(false);
            desk.create(&schedule, &json!({})).await;
            desk.reaches(Phase::Disabled).await;
        }
        Start::Terminated => {
            desk.create(&always(), &json!({ "killSwitch": true })).await;
            desk.reaches(Phase::Terminated).await;
        }
        Start::EmergencyRemove => {
            let stays = Behaviour { removal: Removal::Never, ..Behaviour::default() };
            testbed.fleet().await.provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), stays);
            desk.create(&always(), &json!({ "killIfCommands": ["idea"] })).await;
            desk.runs().await;
            let request = json!({ "metadata": { "annotations": {
                keys::RECLAIM_REQUESTED_ANNOTATION: "true", keys::RECLAIM_REASON_ANNOTATION: "process-match: idea",
            } } });
            desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&request)).await.unwrap();
            desk.until("reclaimed", |it| {
                it.phase == Some(Phase::EmergencyRemove) && it.reclaim.as_ref().is_some_and(|it| it.schedule_disabled)
            })
            .await;
        }
        Start::Error => {
            desk.create(&always(), &json!({ "clusterName": "nowhere" })).await;
            let status = desk.reaches(Phase::Error).await;
            assert_eq!(condition(&status, "ReferencesValid"), ("False".into(), "ClusterNotFound".into()));
        }
        Start::InvalidSpec => {
            desk.create(&always(), &json!({})).await;
            desk.runs().await;
            desk.reschedule(&json!({ "cron": "0 0 31 2-1 *" })).await;
            let status = desk.reaches(Phase::Error).await;
            assert_eq!(condition(&status, "Ready"), ("False".into(), "InvalidSpec".into()));
            assert_eq!(condition(&status, "Scheduled"), ("False".into(), "InvalidSchedule".into()));
            assert_eq!(desk.children().await, (true, true, true));
        }
    }
}

/// What was held is let go, and ends as it should have.
async fn finish(testbed: &Testbed, desk: &Desk<'_>, start: Start, ask: Ask) {
    match (start, ask) {
        (Start::ShuttingDown, Ask::Delete) => {
            desk.test.api::<PodDisruptionBudget>().delete(desk.name, &DeleteParams::default()).await.unwrap();
            desk.is_gone().await;
            assert_eq!(desk.children().await, (false, false, false));
        }
        (Start::ShuttingDown, Ask::Open) => {
            told_once(desk, &["TakenBack"]).await;
        }
        (Start::EmergencyRemove, _) => {
            let infra = format!("{}-infra", desk.name);
            testbed.fleet().await.provider.behave_for(&desk.test.name, &infra, Behaviour::default());
            match ask {
                Ask::Delete => desk.is_gone().await,
                Ask::Kill => drop(desk.reaches(Phase::Terminated).await),
                // A later edit by a person wins over the reclaim.
                Ask::Enable => drop(desk.runs().await),
                Ask::Revive | Ask::Disable | Ask::Open | Ask::Close => {
                    let status = desk.reaches(Phase::Disabled).await;
                    let why = "EmergencyReclaimDisabledSchedule";
                    assert_eq!(condition(&status, "Scheduled"), ("False".into(), why.into()));
                    assert!(!desk.get().await.spec.schedule.enabled);
                    assert_eq!(desk.children().await, (false, false, false));
                }
            }
        }
        _ => {}
    }
}

/// A Cluster that takes no machine for now. Nobody needs it to be more than that.
async fn paused_cluster(test: &TestNamespace) {
    let resource =
        kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    let spec: Value = json!({ "spec": {
        "paused": true,
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "RemoteCluster", "name": "paused" },
    } });
    let cluster = kube::api::DynamicObject::new("paused", &resource).data(spec);
    test.dynamic_api(&resource).create(&PostParams::default(), &cluster).await.unwrap();
}
