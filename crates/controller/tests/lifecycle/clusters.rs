//! A Cluster that is not there, not yet, not any more, or paused.

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_testbed::TestNamespace;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, budget, condition, never, references, testbed};

fn clusters(test: &TestNamespace) -> Api<DynamicObject> {
    test.dynamic_api(&ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster")))
}

async fn pause(test: &TestNamespace, paused: bool) {
    let patch = json!({ "spec": { "paused": paused } });
    clusters(test).patch("edge", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_comes_later_is_joined() {
    let testbed = testbed().await;
    let test = testbed.namespace("late cluster").await;
    let _controller = Controller::start_in(testbed, &test).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterNotFound"));
    assert_eq!(desk.children().await, (false, false, false));
    testbed.cluster(&test, "edge").await.unwrap();
    desk.runs().await;
    test.close().await;
}

#[tokio::test]
async fn a_cluster_that_is_being_deleted_gets_no_machine() {
    let (test, _controller) = a_cluster("leaving cluster").await;
    let hold = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    clusters(&test).patch("edge", &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    clusters(&test).delete("edge", &DeleteParams::default()).await.unwrap();
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterDeleting"));
    assert_eq!(desk.children().await, (false, false, false));
    let free = json!({ "metadata": { "finalizers": null } });
    clusters(&test).patch("edge", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    desk.until("the Cluster is gone", |it| condition(it, "ReferencesValid") == references("ClusterNotFound")).await;
    test.close().await;
}

#[tokio::test]
async fn a_paused_cluster_holds_up_what_is_graceful_and_nothing_else() {
    let (test, _controller) = a_cluster("paused").await;
    pause(&test, true).await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    let waiting = desk.reaches(Phase::Pending).await;
    assert_eq!(condition(&waiting, "ReferencesValid"), references("ClusterPaused"));
    assert_eq!(desk.children().await, (false, false, false));
    pause(&test, false).await;
    desk.runs().await;

    pause(&test, true).await;
    desk.until("paused", |it| condition(it, "ReferencesValid") == references("ClusterPaused")).await;
    desk.reschedule(&never()).await;
    let held = desk.reaches(Phase::ShuttingDown).await;
    assert!(held.message.unwrap().contains("the Cluster is paused"));
    assert!(desk.machine().await.unwrap().metadata.deletion_timestamp.is_none());
    let node = desk.nodes().get(&desk.node_name()).await.unwrap();
    assert_ne!(node.spec.unwrap().unschedulable, Some(true));

    // The kill switch asks nobody: the rest is done when Cluster API does its part again.
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    eventually("the delete is issued and the Node is cordoned", SOON, async || {
        let leaving = desk.machine().await.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        let node = desk.nodes().get(&desk.node_name()).await.unwrap();
        leaving && node.spec.unwrap().unschedulable == Some(true)
    })
    .await;
    pause(&test, false).await;
    desk.reaches(Phase::Terminated).await;
    assert_eq!(desk.children().await, (false, false, false));
    test.close().await;
}

#[tokio::test]
async fn a_shutdown_that_is_paused_has_all_its_time_when_it_is_resumed() {
    let (test, _controller) = a_cluster("midway").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "1h", "gracefulShutdownTimeout": "1h" })).await;
    desk.runs().await;
    desk.pod("web", &json!({ "app": "web" })).await;
    budget(&test.client, &test.name, "web", &json!({ "app": "web" })).await;
    desk.reschedule(&never()).await;
    let blocked = |it: &ScheduledMachineStatus| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"));
    let first = desk.until("blocked", blocked).await.shutdown_started_at.unwrap();
    pause(&test, true).await;
    let held =
        desk.until("held", |it| it.message.as_ref().is_some_and(|it| it.contains("the Cluster is paused"))).await;
    assert_eq!((held.phase, held.shutdown_started_at), (Some(Phase::ShuttingDown), None));
    // The times of a status are whole seconds.
    eventually("it is a second later", SOON, async || jiff::Timestamp::now().as_second() > first.0.as_second()).await;
    pause(&test, false).await;
    let again = desk.until("blocked", |it| blocked(it) && it.shutdown_started_at.is_some()).await;
    assert!(again.shutdown_started_at.unwrap().0 > first.0);
    test.api::<PodDisruptionBudget>().delete("web", &DeleteParams::default()).await.unwrap();
    desk.reaches(Phase::Inactive).await;
    test.close().await;
}
