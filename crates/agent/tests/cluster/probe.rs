//! Readiness: a probe succeeds while the agent is armed and detects processes.

use fivespot_testbed::wait::eventually;
use rustix::process::Signal;

use crate::env::{NO_PATTERNS, NodeEnv, probe_error, shared};
use crate::fixtures::TIMEOUT;

#[tokio::test]
async fn probe_succeeds_only_while_the_agent_is_armed() {
    for detector in ["netlink", "poll"] {
        let node = format!("probe-{detector}");
        let env = NodeEnv::new(shared().await, &node).await;
        let error = probe_error(&env.probe());
        assert!(error.contains("no agent keeps its state in"), "{error}");
        let mut agent = env.start_agent(&["--detector", detector]);
        env.wait_until_not_ready(&format!("ConfigMap 5spot-system/reclaim-agent-{node} {NO_PATTERNS}")).await;

        env.apply_config(&format!("match_commands = ['{node}']\nmatch_argv_substrings = ['--probe']\n")).await;
        for _ in 0..3 {
            env.wait_until_ready().await;
        }
        agent.process.terminate();
        let error = probe_error(&env.probe());
        assert!(error.contains("it was stopped"), "{error}");
        assert!(env.has_no_request().await, "a probe never matches");
    }
}

/// The state file alone does not make an agent ready.
#[tokio::test]
async fn probe_fails_if_the_agent_does_not_detect_it() {
    let env = NodeEnv::new(shared().await, "stopped").await;
    let agent = env.start_armed_agent("match_commands = ['stopped-idea']\n", &[]).await;
    agent.process.signal(Signal::STOP);
    eventually("all threads are stopped", TIMEOUT, async || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", agent.process.pid())).unwrap().flatten();
        threads.into_iter().all(|it| std::fs::read_to_string(it.path().join("stat")).unwrap().contains(") T "))
    })
    .await;
    let error = probe_error(&env.probe());
    assert!(error.contains("did not detect this process"), "{error}");
    agent.process.signal(Signal::CONT);
    env.wait_until_ready().await;
}
