//! Which machine an agent speaks for.

use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;

use crate::process::Program;
use crate::stage::{SOON, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_told_to_be_another_machines_writes_nothing_and_is_not_ready() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-identity").await;
    stage.take_it_for("victim", "other-idea").await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    let is_told = "Node 'victim' is the machine '00000000000000000000000000000001', and this is '";
    let said = |message: &serde_json::Value| message.as_str().is_some_and(|it| it.starts_with(is_told));
    stage.logs(&agent, "that it is on another machine", |it| it["level"] == "ERROR" && said(&it["message"])).await;

    let _idea = Program::start_as_nobody("other-idea");
    eventually("it has tried", SOON, async || !stage.tried().on("nodes").is_empty()).await;
    assert!(stage.tried().succeeded().is_empty(), "{:?}", stage.tried());
    let armed = stage.daemon_set_once(|status| status.current_number_scheduled == 1).await;
    assert_eq!(armed.number_ready, 0, "the alert on agents is to see it");
    stage.end().await;
}
