//! An agent acts only for the machine on which it runs.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;

use crate::env::{AgentEnv, VICTIM, VICTIM_MACHINE_ID};
use crate::process::Program;

#[tokio::test(flavor = "multi_thread")]
async fn agent_with_another_nodes_name_writes_nothing_and_is_not_ready() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-identity").await;
    env.impersonate_victim("other-idea").await;
    env.label_node("enabled").await;
    let agent = env.await_agent().await;
    // Only the log reports the mismatch, with both machine IDs.
    env.await_log(&agent, "the machine ID mismatch", |line| {
        let text = line.to_string();
        line["level"] == "ERROR" && text.contains(VICTIM) && text.contains(VICTIM_MACHINE_ID)
    })
    .await;

    let _idea = Program::start_unprivileged("other-idea");
    eventually("the agent has sent a request", TIMEOUT, async || !env.agent_writes().on("nodes").is_empty()).await;
    assert!(env.agent_writes().succeeded().is_empty(), "{:?}", env.agent_writes());
    let status = env.await_daemon_set(|status| status.current_number_scheduled == 1).await;
    assert_eq!(status.number_ready, 0, "the alert on agents depends on it");
    env.stop().await;
}
