//! Deleting the object, in every way that Kubernetes knows: nothing is left behind.

use fivespot_testbed::wait::eventually;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::json;

use crate::fixtures::{Desk, SOON, a_cluster, always};

async fn nothing_is_left(policy: PropagationPolicy) {
    let (test, _controller) = a_cluster("deletion").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    desk.pod("web", &json!({})).await;

    let how = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    desk.api().delete("desk-01", &how).await.unwrap();
    desk.is_gone().await;
    assert_eq!(desk.children().await, (false, false, false));
    eventually("the Node is gone", SOON, async || desk.nodes().get_opt(&desk.node_name()).await.unwrap().is_none())
        .await;
    test.close().await;
}

#[tokio::test]
async fn a_deletion_in_the_background_leaves_nothing() {
    nothing_is_left(PropagationPolicy::Background).await;
}

#[tokio::test]
async fn a_deletion_in_the_foreground_leaves_nothing() {
    nothing_is_left(PropagationPolicy::Foreground).await;
}

#[tokio::test]
async fn a_deletion_that_orphans_leaves_nothing_either() {
    nothing_is_left(PropagationPolicy::Orphan).await;
}
