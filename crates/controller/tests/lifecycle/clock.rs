//! Stored times that are in the future: the clock was stepped back, or a user wrote them.

use fivespot_api::Phase;
use fivespot_testbed::provider::{Behaviour, Step};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::fixtures::{messages, never, scheduled_machine, setup, testbed};

fn tomorrow() -> String {
    let at = Timestamp::now() + SignedDuration::from_hours(24);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[tokio::test]
async fn shutdown_start_in_the_future_counts_as_now() {
    let (ns, _controller) = setup("future-shutdown").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().node_drain_timeout("20s").create_running().await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    sm.wait_for_message(messages::BLOCKED_BY_PDB).await;
    sm.patch_status(&json!({ "status": { "shutdownStartedAt": tomorrow() } })).await;
    sm.wait_until("the start is corrected", |status| {
        status.shutdown_started_at.as_ref().is_none_or(|at| at.0 <= Timestamp::now())
    })
    .await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn backoff_that_ends_too_late_is_over() {
    let (ns, _controller) = setup("future-backoff").await;
    let provider = &testbed().await.fleet().await.provider;
    let fail = Step::Fail { reason: "NoPower".to_owned(), message: "the plug is out".to_owned() };
    provider.behave_in(&ns.name, Behaviour { infrastructure: fail, ..Behaviour::default() });
    let sm = scheduled_machine(&ns, "desk-01").create().await;
    sm.wait_for_message(messages::RECREATED_AT).await;
    provider.behave_in(&ns.name, Behaviour::default());
    sm.patch_status(&json!({ "status": { "machineFailure": { "retryAt": tomorrow() } } })).await;
    sm.wait_until_running().await;
    ns.close().await;
}
