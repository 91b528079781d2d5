//! Changes of the agent configuration in the ConfigMap.

use fivespot_testbed::wait::eventually;
use serde_json::Value;

use crate::env::{Agent, NO_PATTERNS, NodeEnv, REASON, shared, start_control_plane};
use crate::fixtures::{ChildProcess, TIMEOUT};
use crate::tcp_proxy::TcpProxy;

/// How often the agent was disarmed. A reconnect of the watch must not disarm it, not even for a moment, and only the log shows
/// that.
fn times_disarmed(agent: &Agent) -> usize {
    agent.logged("Disarmed: nothing to match").len()
}

#[tokio::test]
async fn new_configuration_matches_running_programs() {
    for detector in ["netlink", "poll"] {
        let node = format!("other-{detector}");
        let (first, second) = (format!("{node}-1"), format!("{node}-2"));
        let env = NodeEnv::new(shared().await, &node).await;
        let _second = env.start_program(&second);
        let _agent = env.start_armed_agent(&format!("match_commands = ['{first}']\n"), &["--detector", detector]).await;
        env.apply_config(&format!("match_commands = ['{second}']\n")).await;
        let annotations = env.wait_for_request().await;
        assert_eq!(annotations[REASON], format!("process-match: {second}"));
    }
}

#[tokio::test]
async fn agent_without_configuration_matches_nothing() {
    for detector in ["netlink", "poll"] {
        let node = format!("inert-{detector}");
        let env = NodeEnv::new(shared().await, &node).await;
        let agent = env.start_agent(&["--detector", detector]);
        env.wait_until_not_ready(NO_PATTERNS).await;
        let config = format!("match_commands = ['{node}']\n");
        env.apply_config(&config).await;
        env.wait_until_ready().await;
        env.delete_config().await;
        env.wait_until_not_ready(NO_PATTERNS).await;
        let _idea = env.start_program(&node);
        env.apply_config("match_commands = []\n").await;
        env.apply_config("# nothing\n").await;
        env.apply_config(&config).await;
        env.wait_for_request().await;
        assert!(env.requested_after_last_config().await, "it matched while it was disarmed");
        assert_eq!(env.reclaim_requests().await, 1);
        assert_eq!(times_disarmed(&agent), 2, "{}", agent.log());
    }
}

#[tokio::test]
async fn invalid_configuration_is_reported_and_the_previous_one_kept() {
    let env = NodeEnv::new(shared().await, "bad").await;
    env.apply_config("match_commands = ['bad-idea',\n  '']\n").await;
    let mut agent = env.start_agent(&[]);
    env.wait_until_not_ready("ConfigMap 5spot-system/reclaim-agent-bad: line 2, column 3: match_commands[1]").await;
    env.apply_config("match_commands = ['bad-idea']\n").await;
    env.wait_until_ready().await;
    env.apply_config("match_commands = 7\n").await;
    let is_kept = |line: &Value| {
        line["level"] == "ERROR"
            && line["error"].as_str().unwrap().contains("line 1, column 18")
            && line["kept_previous"] == true
    };
    agent.wait_for_log("Invalid agent configuration", is_kept).await;
    env.wait_until_ready().await;
    let _idea = env.start_program("bad-idea");
    env.wait_for_request().await;
    assert!(agent.process.is_running());
}

/// The controller deletes the ConfigMap before it clears the request, so that a program that still runs does not request again.
#[tokio::test]
async fn cleared_request_is_not_repeated_without_configuration() {
    let env = NodeEnv::new(shared().await, "finished").await;
    let _agent = env.start_armed_agent("match_commands = ['finished-idea']\n", &[]).await;
    let _idea = env.start_program("finished-idea");
    env.wait_for_request().await;
    env.delete_config().await;
    env.wait_until_not_ready(NO_PATTERNS).await;
    env.clear_request().await;
    let before = env.agent_requests().await;
    // Longer than the interval at which a stored request is polled.
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    assert!(env.has_no_request().await);
    assert_eq!(env.agent_requests().await, before, "it still polls the request");
}

async fn lists(env: &NodeEnv<'_>) -> usize {
    env.agent_requests().await.filter(|entry| entry.verb == "list").len()
}

#[tokio::test]
async fn closed_watch_is_resumed() {
    let env = NodeEnv::new(shared().await, "ends").await;
    let proxy = TcpProxy::in_front_of(env.access.server()).await;
    env.connect_via(&proxy.server());
    let agent = env.start_armed_agent("match_commands = ['ends-idea']\n", &[]).await;
    for times in 2..5 {
        proxy.close_connections();
        env.apply_config(&format!("match_commands = ['ends-idea', 'ends-idea-{times}']\n")).await;
        env.wait_until_armed(times).await;
    }
    assert_eq!(times_disarmed(&agent), 0, "{}", agent.log());
    let _idea = env.start_program("ends-idea-4");
    env.wait_for_request().await;
}

/// A restarted API server does not know earlier resource versions and responds 410 Gone; the watcher lists again.
#[tokio::test]
async fn expired_watch_keeps_the_configuration() {
    let plane = start_control_plane("agent-expired").await;
    let env = NodeEnv::new(&plane, "expired").await;
    let agent = env.start_armed_agent("match_commands = ['expired-idea']\n", &[]).await;
    env.wait_until_armed(1).await;
    assert_eq!(lists(&env).await, 1);
    let other = NodeEnv::new(&plane, "expired-other").await;
    for text in ["a", "b", "c"] {
        other.apply_config(text).await;
    }
    plane.kill_api_server();
    plane.start_api_server().await.unwrap();
    eventually("the agent lists again", TIMEOUT, async || lists(&env).await >= 2).await;
    env.apply_config("match_commands = ['expired-idea', 'expired-idea-2']\n").await;
    env.wait_until_armed(2).await;
    assert_eq!(times_disarmed(&agent), 0, "{}", agent.log());
    assert_eq!(env.node_reads().await, 2, "an unchanged configuration does not arm again");
    let _idea = env.start_program("expired-idea-2");
    env.wait_for_request().await;
}

/// The controller writes the ConfigMap without an interval, and reverts edits.
#[tokio::test]
async fn poll_interval_is_set_by_flag_or_variable() {
    let config = |text: &str| format!("match_commands = ['interval-idea']\n{text}");
    for (name, arguments, variable, text, expected) in [
        ("interval-default", &[][..], None, "", "armed 250"),
        ("interval-file", &[], None, "poll_interval_ms = 300\n", "armed 300"),
        ("interval-flag", &["--poll-interval", "20ms"], Some("1s"), "poll_interval_ms = 300\n", "armed 20"),
        ("interval-variable", &[], Some("1s"), "poll_interval_ms = 300\n", "armed 1000"),
    ] {
        let env = NodeEnv::new(shared().await, name).await;
        env.apply_config(&config(text)).await;
        let mut command = env.command(&[&["--detector", "poll"], arguments].concat());
        command.envs(variable.map(|value| ("RECLAIM_POLL_INTERVAL", value)));
        let _agent = ChildProcess(command.stderr(std::process::Stdio::null()).spawn().unwrap());
        env.wait_until_ready().await;
        // What a probe waits for, in milliseconds.
        assert_eq!(std::fs::read_to_string(env.path("state/state")).unwrap().trim_end(), expected, "{name}");
    }
}
