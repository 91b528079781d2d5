//! An API server that is away, an agent that is killed: the request is stored all the same.

use fivespot_testbed::process::Signal;

use crate::gate::Gate;
use crate::stage::{Stage, plane, shared};

#[tokio::test]
async fn an_api_server_that_is_away_at_start_and_at_the_match_gets_the_request_when_it_is_back() {
    let plane = plane("agent-away").await;
    let stage = Stage::new(&plane, "away").await;
    stage.order("match_commands = ['away-idea']\n").await;
    plane.kill_api_server();
    let agent = stage.agent(&[]);
    agent.says("it cannot be watched for now").await;
    plane.start_api_server().await.unwrap();
    agent.says("\"armed\"").await;

    plane.kill_api_server();
    let idea = stage.start("away-idea");
    agent.says("the request is not stored yet").await;
    // The match is a trigger: what becomes of the program does not matter.
    drop(idea);
    plane.start_api_server().await.unwrap();
    stage.requested().await;
}

#[tokio::test]
async fn an_api_server_that_hangs_at_the_match_gets_the_request_when_it_goes_on() {
    let plane = plane("agent-hangs").await;
    let stage = Stage::new(&plane, "hangs").await;
    let agent = stage.armed("match_commands = ['hangs-idea']\n", &[]).await;
    plane.signal_api_server(Signal::STOP).unwrap();
    let _idea = stage.start("hangs-idea");
    agent.says("\"match\"").await;
    // Some attempts are given up meanwhile.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    plane.signal_api_server(Signal::CONT).unwrap();
    stage.requested().await;
    agent.says("the request is stored").await;
}

/// The connection looks alive and nobody is behind it. The way that is open is another.
#[tokio::test]
async fn a_connection_that_nobody_is_behind_does_not_hold_the_request_up() {
    let stage = Stage::new(shared().await, "gate").await;
    let gate = Gate::before(stage.access.server()).await;
    stage.reach_at(&gate.server());
    let agent = stage.armed("match_commands = ['gate-idea']\n", &[]).await;
    gate.shut();
    let _idea = stage.start("gate-idea");
    agent.says("\"match\"").await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(stage.is_not_requested().await);
    gate.open();
    stage.requested().await;
    agent.says("answered on another connection").await;
    // Nor does it hold up what it is told.
    stage.order("match_commands = ['gate-idea', 'gate-idea-2']\n").await;
    agent.says_times("\"armed\"", 2).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_before_the_request_is_stored_makes_it_when_it_is_back() {
    let stage = Stage::new(shared().await, "killed").await;
    let gate = Gate::before(stage.access.server()).await;
    stage.reach_at(&gate.server());
    let agent = stage.armed("match_commands = ['killed-idea']\n", &[]).await;
    gate.shut();
    let _idea = stage.start("killed-idea");
    agent.says("\"match\"").await;
    agent.process.signal(rustix::process::Signal::KILL);
    drop(agent);
    gate.open();
    assert!(stage.is_not_requested().await);
    let _agent = stage.agent(&[]);
    stage.requested().await;
}
