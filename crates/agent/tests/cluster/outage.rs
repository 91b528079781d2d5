//! An API server or agent that is down during a match: the request is stored as soon as possible.

use std::time::Duration;

use fivespot_testbed::NetworkNamespace;
use fivespot_testbed::process::Signal;
use fivespot_testbed::wait::eventually;

use crate::env::{NodeEnv, REASON, shared, start_control_plane};
use crate::tcp_proxy::TcpProxy;

/// The agent notices a dead connection within 30 s; the rest is for two busy cores.
const WATCH_DEADLINE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn request_is_stored_when_the_api_server_is_restarted() {
    let plane = start_control_plane("agent-restart").await;
    let env = NodeEnv::new(&plane, "restart").await;
    env.apply_config("match_commands = ['restart-idea']\n").await;
    plane.kill_api_server();
    let agent = env.start_agent(&[]);
    agent.wait_for_log("Cannot watch agent configuration; retrying and keeping the last one", |_| true).await;
    env.wait_until_not_ready("ConfigMap 5spot-system/reclaim-agent-restart has not been read yet").await;
    plane.start_api_server().await.unwrap();
    env.wait_until_ready().await;

    plane.kill_api_server();
    let idea = env.start_program("restart-idea");
    agent.wait_for_log("Cannot store reclaim request; retrying", |_| true).await;
    // A match counts even if the program exits.
    drop(idea);
    plane.start_api_server().await.unwrap();
    env.wait_for_request().await;
}

#[tokio::test]
async fn request_is_stored_when_a_hanging_api_server_continues() {
    let plane = start_control_plane("agent-hangs").await;
    let env = NodeEnv::new(&plane, "hangs").await;
    let _agent = env.start_armed_agent("match_commands = ['hangs-idea']\n", &[]).await;
    plane.signal_api_server(Signal::STOP).unwrap();
    let _idea = env.start_program("hangs-idea");
    env.wait_until_handled().await;
    // Some attempts time out meanwhile.
    tokio::time::sleep(Duration::from_secs(4)).await;
    plane.signal_api_server(Signal::CONT).unwrap();
    env.wait_for_request().await;
}

#[tokio::test]
async fn dead_connection_delays_neither_request_nor_configuration() {
    let env = NodeEnv::new(shared().await, "dead").await;
    let proxy = TcpProxy::in_front_of(env.access.server()).await;
    env.connect_via(&proxy.server());
    let _agent = env.start_armed_agent("match_commands = ['dead-idea']\n", &[]).await;
    env.wait_until_armed(1).await;
    proxy.black_hole();
    let idea = env.start_program("dead-idea");
    env.wait_until_handled().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(env.has_no_request().await);
    let forwarded = proxy.forwarded();
    proxy.restore();
    env.wait_for_request().await;
    assert!(proxy.forwarded() > forwarded, "the request was sent on a new connection");

    drop(idea);
    env.apply_config("match_commands = ['dead-idea-2']\n").await;
    env.clear_request().await;
    let _idea = env.start_program("dead-idea-2");
    assert_eq!(env.wait_for_request().await[REASON], "process-match: dead-idea-2");
}

/// Packets of the agent's connection are dropped, so that no end of it ever arrives.
#[tokio::test]
async fn lost_packets_delay_neither_request_nor_configuration() {
    if !NetworkNamespace::is_possible() {
        return;
    }
    let env = NodeEnv::new(shared().await, "packets").await;
    let network = NetworkNamespace::create(&env.plane.logs()).unwrap();
    let proxy = TcpProxy::on(network.host_address(), env.access.server()).await;
    env.connect_via(&proxy.server());
    env.apply_config("match_commands = ['packets-idea']\n").await;
    let _agent = env.start_agent_in(&network);
    env.wait_until_ready().await;
    let forwarded = proxy.forwarded();
    network.cut_established_connections().unwrap();
    let idea = env.start_program("packets-idea");
    env.wait_for_request().await;
    assert!(proxy.forwarded() > forwarded, "the request was sent on a new connection");

    drop(idea);
    env.apply_config("match_commands = ['packets-idea-2']\n").await;
    env.clear_request().await;
    let _idea = env.start_program("packets-idea-2");
    // A silent watch is renewed by itself after about five minutes.
    eventually("the new configuration is in effect", WATCH_DEADLINE, async || {
        env.annotations().await[REASON] == "process-match: packets-idea-2"
    })
    .await;
}

#[tokio::test]
async fn restarted_agent_requests_what_the_killed_one_could_not() {
    let env = NodeEnv::new(shared().await, "killed").await;
    let proxy = TcpProxy::in_front_of(env.access.server()).await;
    env.connect_via(&proxy.server());
    let agent = env.start_armed_agent("match_commands = ['killed-idea']\n", &[]).await;
    env.wait_until_armed(1).await;
    proxy.black_hole();
    let _idea = env.start_program("killed-idea");
    env.wait_until_handled().await;
    agent.process.signal(Signal::KILL);
    drop(agent);
    proxy.restore();
    assert!(env.has_no_request().await);
    let _agent = env.start_agent(&[]);
    env.wait_for_request().await;
}
