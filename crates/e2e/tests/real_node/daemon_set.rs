//! Scheduling, readiness and privileges of the agent's DaemonSet.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;

use crate::env::AgentEnv;
use crate::process::{Program, children_of, listening_sockets, status_of};

#[tokio::test(flavor = "multi_thread")]
async fn agent_follows_the_node_label_despite_taints() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-label").await;
    let before = env.await_daemon_set(|status| status.observed_generation.is_some()).await;
    assert_eq!(before.desired_number_scheduled, 0, "the Node has no label");

    env.taint_node().await;
    env.label_node("enabled").await;
    let agent = env.await_agent().await;
    let pid = env.agent_pid(&agent).await;
    env.label_node("disabled").await;
    env.await_daemon_set(|status| status.current_number_scheduled == 0).await;
    eventually("the agent has exited", TIMEOUT, async || status_of(pid).is_none()).await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_is_ready_only_when_armed() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-ready").await;
    env.label_node("enabled").await;
    env.await_agent().await;
    env.await_config_read().await;
    let unarmed = env.await_daemon_set(|status| status.current_number_scheduled == 1).await;
    assert_eq!(unarmed.number_ready, 0);

    env.configure_agent("idea").await;
    env.await_armed().await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_requests_reclaim_for_host_processes_but_not_for_pods() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-programs").await;
    let pod_pid = env.run_idea_pod().await;
    env.configure_agent("idea").await;
    env.label_node("enabled").await;
    env.await_armed().await;
    let agent = env.await_agent().await;
    let armed = env.await_log(&agent, "its detector", |line| line["detector"].is_string()).await;
    assert_eq!(armed["detector"], "netlink", "{armed}");

    let idea = Program::start_unprivileged("idea");
    // The pod's process started earlier, so it would be the first match.
    let found = env.await_match(&agent).await;
    assert_eq!(found["pid"], idea.pid(), "the pod's process is {pod_pid}: {found}");
    env.await_reclaim_request("idea").await;
    env.stop().await;
}

/// The kernel enforces what the manifest requests.
#[tokio::test(flavor = "multi_thread")]
async fn agent_runs_with_one_capability_on_read_only_root() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-privileges").await;
    env.configure_agent("privileged-idea").await;
    env.label_node("enabled").await;
    // An armed agent has all its sockets open.
    env.await_armed().await;
    let pid = env.agent_pid(&env.await_agent().await).await;
    let status = status_of(pid).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let net_admin = format!("{:016x}", 1 << 12);
    assert_eq!((field("CapEff:"), field("CapBnd:")), (net_admin.clone(), net_admin));
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2", "filter mode");
    assert_eq!(field("Uid:"), "0\t0\t0\t0");
    assert_eq!(children_of(pid), "", "the agent starts no processes");
    assert_eq!(listening_sockets(pid), Vec::<String>::new(), "the agent accepts no connections");
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
    env.stop().await;
}
