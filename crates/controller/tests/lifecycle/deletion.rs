//! Deletion of a ScheduledMachine with each propagation policy.

use kube::api::{DeleteParams, PropagationPolicy};

use crate::fixtures::{Children, scheduled_machine, setup, wait_for};

async fn assert_deletion_leaves_nothing(policy: PropagationPolicy) {
    let (ns, _controller) = setup("deletion").await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    sm.create_pod("web").await;

    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    sm.api().delete("desk-01", &params).await.unwrap();
    sm.wait_until_deleted().await;
    assert_eq!(sm.children().await, Children::NONE);
    wait_for("the Node is deleted", async || sm.nodes().get_opt(&sm.node_name()).await.unwrap().is_none()).await;
    ns.close().await;
}

#[tokio::test]
async fn background_deletion_leaves_nothing() {
    assert_deletion_leaves_nothing(PropagationPolicy::Background).await;
}

#[tokio::test]
async fn foreground_deletion_leaves_nothing() {
    assert_deletion_leaves_nothing(PropagationPolicy::Foreground).await;
}

#[tokio::test]
async fn orphan_deletion_leaves_nothing() {
    assert_deletion_leaves_nothing(PropagationPolicy::Orphan).await;
}
