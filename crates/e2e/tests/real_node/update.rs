//! Rolling updates of the agent's DaemonSet.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::env::{AGENT_IMAGE, AgentEnv};
use crate::process::Program;

const MISSING_IMAGE: &str = "localhost/5spot/agent:missing";

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until `condition` holds for the agent's pods. Asserts on each poll that one of them is ready.
async fn await_pods_with_one_ready(env: &AgentEnv, what: &str, condition: impl Fn(&[Pod]) -> bool) {
    eventually(what, TIMEOUT, async || {
        let pods = env.pods().await;
        assert!(pods.iter().any(is_ready), "no agent is ready: {pods:#?}");
        if condition(&pods) { Ok(()) } else { Err(json!(pods)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn update_keeps_an_agent_ready_even_if_the_new_one_cannot_start() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-update").await;
    env.configure_agent("updated-idea").await;
    env.label_node("enabled").await;
    env.await_armed().await;
    let old = env.await_agent().await;

    env.roll_out(json!({ "image": MISSING_IMAGE })).await;
    let cannot_start = |pod: &Pod| json!(pod).to_string().contains("ErrImageNeverPull");
    await_pods_with_one_ready(&env, "the new agent cannot start", |pods| pods.iter().any(cannot_start)).await;

    env.roll_out(json!({ "image": AGENT_IMAGE, "env": [{ "name": "RECLAIM_DETECTOR", "value": "netlink" }] })).await;
    let replaced = |pods: &[Pod]| pods.len() == 1 && pods[0].name_any() != old;
    await_pods_with_one_ready(&env, "the new agent has replaced the old one", replaced).await;

    let idea = Program::start_unprivileged("updated-idea");
    env.await_reclaim_request("updated-idea").await;
    let found = env.await_match(&env.await_agent().await).await;
    assert_eq!(found["pid"], idea.pid(), "{found}");
    env.stop().await;
}

/// The shipped update strategy leaves no gap, but another strategy or a reboot does.
#[tokio::test(flavor = "multi_thread")]
async fn new_agent_finds_a_program_started_while_no_agent_ran() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-gap").await;
    env.configure_agent("gap-idea").await;
    env.label_node("enabled").await;
    env.await_armed().await;
    let old = env.await_agent().await;
    env.edit_daemon_set(json!({ "updateStrategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } } })).await;
    env.roll_out(json!({ "image": MISSING_IMAGE })).await;
    eventually("the old agent is deleted", TIMEOUT, async || {
        let pods = env.pods().await;
        if pods.iter().any(|pod| pod.name_any() == old) { Err(json!(pods)) } else { Ok(()) }
    })
    .await;

    let idea = Program::start_unprivileged("gap-idea");
    env.roll_out(json!({ "image": AGENT_IMAGE })).await;
    env.await_reclaim_request("gap-idea").await;
    let found = env.await_match(&env.await_agent().await).await;
    assert_eq!(found["pid"], idea.pid(), "{found}");
    env.stop().await;
}
