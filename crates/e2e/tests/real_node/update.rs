//! An agent that is replaced by another, as by an update of its DaemonSet.

use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::process::Program;
use crate::stage::{AGENT_IMAGE, SOON, Stage};

/// Nobody has it.
const MISSING_IMAGE: &str = "localhost/5spot/agent:missing";

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Waits until there are such pods. At each look an agent is ready.
async fn guarded_until(stage: &Stage, what: &str, are_so: impl Fn(&[Pod]) -> bool) {
    eventually(what, SOON, async || {
        let pods = stage.pods().await;
        assert!(pods.iter().any(is_ready), "no agent looks out: {pods:#?}");
        if are_so(&pods) { Ok(()) } else { Err(json!(pods)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_leaves_no_moment_without_an_agent_even_one_that_cannot_start() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-update").await;
    stage.look_for("updated-idea").await;
    stage.label_node("enabled").await;
    stage.daemon_set_once(|status| status.number_ready == 1).await;
    let old = stage.agent().await;

    stage.roll_out(json!({ "image": MISSING_IMAGE })).await;
    let cannot_start = |it: &Pod| json!(it).to_string().contains("ErrImageNeverPull");
    guarded_until(&stage, "the new one cannot start", |pods| pods.iter().any(cannot_start)).await;

    stage.roll_out(json!({ "image": AGENT_IMAGE, "env": [{ "name": "RECLAIM_DETECTOR", "value": "netlink" }] })).await;
    let taken_over = |pods: &[Pod]| pods.len() == 1 && pods[0].name_any() != old;
    guarded_until(&stage, "the old one is gone", taken_over).await;

    let idea = Program::start_as_nobody("updated-idea");
    stage.requested("updated-idea").await;
    let found = stage.logs(&stage.agent().await, "a match", |it| it["message"] == "match").await;
    assert_eq!(found["pid"], idea.pid(), "{found}");
    stage.end().await;
}

/// As shipped there is always one; who changes that, or restarts a machine, has a time without.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_started_between_two_agents_is_found_by_the_second() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-between").await;
    stage.look_for("between-idea").await;
    stage.label_node("enabled").await;
    stage.daemon_set_once(|status| status.number_ready == 1).await;
    let old = stage.agent().await;
    stage
        .edit_daemon_set(json!({ "updateStrategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } }))
        .await;
    stage.roll_out(json!({ "image": MISSING_IMAGE })).await;
    eventually("the old one is gone", SOON, async || {
        let pods = stage.pods().await;
        if pods.iter().any(|it| it.name_any() == old) { Err(json!(pods)) } else { Ok(()) }
    })
    .await;

    let idea = Program::start_as_nobody("between-idea");
    stage.roll_out(json!({ "image": AGENT_IMAGE })).await;
    stage.requested("between-idea").await;
    let found = stage.logs(&stage.agent().await, "a match", |it| it["message"] == "match").await;
    assert_eq!(found["pid"], idea.pid(), "{found}");
    stage.end().await;
}
