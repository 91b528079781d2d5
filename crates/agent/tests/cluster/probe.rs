//! Whether it is armed and hears of processes.

use std::process::Output;

use fivespot_testbed::wait::eventually;

use crate::stage::{SOON, Stage, shared};

fn why_not(probe: &Output) -> String {
    let why = String::from_utf8(probe.stderr.clone()).unwrap();
    assert_eq!(probe.status.code(), Some(1), "{why}");
    why
}

/// Waits until a probe succeeds: on a busy machine one may be given up before the agent has had its turn.
pub(crate) async fn is_ready(stage: &Stage<'_>) {
    eventually("a probe succeeds", SOON, async || {
        let probe = stage.probe();
        if probe.status.success() { Ok(()) } else { Err(why_not(&probe)) }
    })
    .await;
}

/// Waits until a probe is told this: it is said in the log first.
pub(crate) async fn is_not_ready(stage: &Stage<'_>, because: &str) {
    eventually(&format!("a probe is told: {because}"), SOON, async || {
        let why = why_not(&stage.probe());
        if why.contains(because) { Ok(()) } else { Err(why) }
    })
    .await;
}

#[tokio::test]
async fn a_probe_succeeds_while_the_agent_is_armed_and_says_why_not_otherwise() {
    for detector in ["netlink", "poll"] {
        let node = format!("probe-{detector}");
        let stage = Stage::new(shared().await, &node).await;
        let why = why_not(&stage.probe());
        assert!(why.contains("no agent keeps its state in"), "{why}");
        let agent = stage.agent(&["--detector", detector]);
        agent.says("nothing to look for").await;
        is_not_ready(&stage, &format!("ConfigMap 5spot-system/reclaim-agent-{node} is not there")).await;

        stage.order(&format!("match_commands = ['{node}']\nmatch_argv_substrings = ['--probe']\n")).await;
        agent.says("\"armed\"").await;
        for _ in 0..3 {
            is_ready(&stage).await;
        }
        agent.stop();
        let why = why_not(&stage.probe());
        assert!(why.contains("it has been stopped"), "{why}");
        assert!(stage.is_not_requested().await, "a probe is no match");
    }
}

/// A file that says so is not enough.
#[tokio::test]
async fn an_agent_that_does_not_hear_of_the_probe_is_not_ready() {
    let stage = Stage::new(shared().await, "deaf").await;
    let agent = stage.armed("match_commands = ['deaf-idea']\n", &[]).await;
    is_ready(&stage).await;
    agent.process.signal(rustix::process::Signal::STOP);
    // On a busy machine its threads take a moment.
    eventually("all its threads stand still", SOON, async || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", agent.process.0.id())).unwrap().flatten();
        threads.into_iter().all(|it| std::fs::read_to_string(it.path().join("stat")).unwrap().contains(") T "))
    })
    .await;
    let why = why_not(&stage.probe());
    assert!(why.contains("has not noticed this process"), "{why}");
    agent.process.signal(rustix::process::Signal::CONT);
    is_ready(&stage).await;
}
