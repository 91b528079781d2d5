//! From a match to the annotations on the Node.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use fivespot_testbed::wait::eventually;
use serde_json::{Value, json};

use crate::env::{NAMESPACE, NodeEnv, REASON, REQUESTED_AT, shared};
use crate::fixtures::{ChildProcess, TIMEOUT};

#[tokio::test]
async fn started_program_requests_reclaim_in_one_write() {
    for detector in ["netlink", "poll"] {
        let node = format!("start-{detector}");
        let env = NodeEnv::new(shared().await, &node).await;
        let config = format!("match_commands = ['{node}']\nmatch_argv_substrings = ['{node} 6']\n");
        let mut agent = env.start_armed_agent(&config, &["--detector", detector]).await;
        let before = jiff::Timestamp::now().as_second();
        let _idea = env.start_program(&node);
        let annotations = env.wait_for_request().await;
        assert_eq!(annotations["kept"], "yes");
        assert_eq!(annotations[REASON], format!("process-match: {node}"));
        let requested_at: jiff::Timestamp = annotations[REQUESTED_AT].as_str().unwrap().parse().unwrap();
        assert!(requested_at.as_second() >= before);

        let _another = env.start_program(&node);
        env.wait_until_handled().await;
        let patches = env.agent_requests().await.filter(|entry| entry.verb == "patch");
        assert_eq!(env.reclaim_requests().await, 1, "{patches:?}");
        let patch = &patches.0[0];
        assert!(patch.uri.contains("fieldManager=5spot-reclaim-agent"), "{patch:?}");
        assert!(patch.user_agent.starts_with("5spot-reclaim-agent/"), "{patch:?}");
        agent.process.terminate();
    }
}

#[tokio::test]
async fn running_program_requests_reclaim_on_arming() {
    let env = NodeEnv::new(shared().await, "early").await;
    let _idea = env.start_program("early-idea");
    let _agent = env.start_armed_agent("match_commands = ['early-idea']\n", &[]).await;
    env.wait_for_request().await;
}

#[tokio::test]
async fn node_without_annotations_gets_the_request() {
    let env = NodeEnv::with_metadata(shared().await, "bare", &json!({})).await;
    let agent = env.start_armed_agent("match_commands = ['bare-idea']\n", &[]).await;
    let _idea = env.start_program("bare-idea");
    let annotations = env.wait_for_request().await;
    assert_eq!(annotations[REASON], "process-match: bare-idea");
    assert_eq!(annotations.as_object().unwrap().len(), 3);
    assert_eq!(agent.logged("Cannot store reclaim request; retrying"), [] as [Value; 0]);
}

/// A mismatch is reported when the agent is armed, before it matters.
#[tokio::test]
async fn wrong_machine_id_prevents_the_request() {
    let env = NodeEnv::new(shared().await, "mismatch").await;
    env.set_machine_id("another-machine\n");
    env.apply_config("match_commands = ['mismatch-idea']\n").await;
    let mut agent = env.start_agent(&[]);
    let expected =
        "Node mismatch has machine ID \"machine-of-mismatch\", expected \"another-machine\"; nothing was written";
    env.wait_until_not_ready(expected).await;

    let _idea = env.start_program("mismatch-idea");
    eventually("the API server rejects the request", TIMEOUT, async || {
        env.agent_requests().await.filter(|entry| entry.verb == "patch" && entry.code == 422).len() == 1
    })
    .await;
    let is_expected = |line: &&Value| line["level"] == "ERROR" && line["error"].as_str().unwrap().starts_with(expected);
    eventually("the mismatch is logged again", TIMEOUT, async || {
        agent.logged("Node belongs to another machine").iter().filter(is_expected).count() == 2
    })
    .await;
    assert!(env.has_no_request().await);
    assert!(agent.process.is_running());
    assert_eq!(env.reclaim_requests().await, 1, "it is not retried");
    assert_eq!(agent.logged("Node belongs to this machine now"), [] as [Value; 0]);
}

/// After a reinstallation, or if another machine has taken the name.
#[tokio::test]
async fn request_waits_until_the_node_is_this_machine_again() {
    let env = NodeEnv::new(shared().await, "replaced").await;
    env.use_access(&env.pod_access("replaced").await);
    let agent = env.start_armed_agent("match_commands = ['replaced-idea']\n", &[]).await;
    env.delete_node().await;
    env.recreate_node("another").await;
    let _idea = env.start_program("replaced-idea");
    let expected = "Node replaced has machine ID \"another\", expected \"machine-of-replaced\"; nothing was written";
    env.wait_until_not_ready(expected).await;
    assert!(env.has_no_request().await);
    let written = env.agent_requests().await.filter(|entry| entry.verb == "patch" && entry.succeeded());
    assert!(written.is_empty(), "{written:?}");

    env.delete_node().await;
    env.recreate_node("machine-of-replaced").await;
    env.wait_for_request().await;
    env.wait_until_ready().await;
    assert_eq!(agent.logged("Node belongs to another machine").len(), 1, "{}", agent.log());
    assert_eq!(agent.logged("Node belongs to this machine now").len(), 1, "{}", agent.log());
}

/// A process may have any name. The log stays one JSON object per line without control characters, and the API server accepts
/// the request.
#[tokio::test]
async fn hostile_process_name_is_escaped() {
    let env = NodeEnv::new(shared().await, "hostile").await;
    let pattern = format!("hostile-idea\n\u{1b}[2J\"'\\\u{7f}\u{9b}{}", "\u{1d11e}".repeat(230));
    let toml = serde_json::to_string(&pattern).unwrap().replace('\u{7f}', "\\u007f").replace('\u{9b}', "\\u009b");
    let agent = env.start_armed_agent(&format!("match_argv_substrings = [{toml}]\n"), &[]).await;
    let name = std::ffi::OsStr::from_bytes(b"hostile\n\x1b\x7f\xc2\x9b\xff\"");
    let program = env.path("x").with_file_name(name);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut command = Command::new(program);
    command.arg0(format!("/opt/{pattern}/bin")).arg("0".repeat(100_000)).arg("600");
    let _hostile = ChildProcess(command.spawn().unwrap());
    let annotations = env.wait_for_request().await;
    assert_eq!(annotations[REASON], format!("process-match: {pattern}"));

    agent.wait_for_log("Reclaim requested", |line| line["reason"] == annotations[REASON]).await;
    let found = &agent.logged("Match found")[0];
    assert_eq!((&found["comm"], &found["matched"]), (&json!("hostile\n\u{1b}\u{7f}\u{9b}\u{fffd}\""), &json!(pattern)));
    let log = agent.log();
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log:?}");
    assert!(!log.contains(|it: char| it != '\n' && it.is_control()), "{log:?}");
}

#[tokio::test]
async fn skipped_host_id_check_trusts_the_node_name() {
    let env = NodeEnv::new(shared().await, "trusted").await;
    env.set_machine_id("another-machine\n");
    let _agent = env.start_armed_agent("match_commands = ['trusted-idea']\n", &["--skip-host-id-check"]).await;
    let _idea = env.start_program("trusted-idea");
    assert_eq!(env.wait_for_request().await["kept"], "yes");
}

#[tokio::test]
async fn cleared_request_is_repeated_while_the_program_runs() {
    let env = NodeEnv::new(shared().await, "again").await;
    let _agent = env.start_armed_agent("match_commands = ['again-idea']\n", &[]).await;
    let _idea = env.start_program("again-idea");
    env.wait_for_request().await;
    env.clear_request().await;
    env.wait_for_request().await;
    assert_eq!(env.reclaim_requests().await, 2);
}

/// Except for the watch.
#[tokio::test]
async fn idle_agent_sends_no_requests() {
    let env = NodeEnv::new(shared().await, "quiet").await;
    let _agent = env.start_armed_agent("match_commands = ['quiet-idea']\n", &[]).await;
    env.wait_until_armed(1).await;
    let before = env.agent_requests().await;
    for _ in 0..200 {
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    assert_eq!(env.agent_requests().await, before);
    let _idea = env.start_program("quiet-idea");
    env.wait_for_request().await;
    assert_eq!(env.reclaim_requests().await, 1);
}

/// Log and probe must show an operator what is missing.
#[tokio::test]
async fn rejection_by_the_policy_is_reported() {
    let env = NodeEnv::new(shared().await, "unbound").await;
    let unbound = env.plane.service_account(NAMESPACE, "5spot-reclaim-agent").await.unwrap();
    env.use_access(&unbound);
    env.apply_config("match_commands = ['unbound-idea']\n").await;
    let mut agent = env.start_agent(&[]);
    let cause = "the token of the reclaim agent names no Node";
    env.wait_until_not_ready(cause).await;
    let _idea = env.start_program("unbound-idea");
    let names_cause = |line: &Value| line["error"].as_str().unwrap().contains(cause);
    agent.wait_for_log("Cannot store reclaim request; retrying", names_cause).await;
    assert!(env.has_no_request().await);
    assert!(agent.process.is_running());
}

#[tokio::test]
async fn config_file_replaces_the_config_map() {
    let env = NodeEnv::new(shared().await, "file").await;
    let path = env.path("reclaim.toml");
    std::fs::write(&path, "match_commands = ['file-idea']\n").unwrap();
    let _agent = env.start_agent(&["--config", path.to_str().unwrap()]);
    env.wait_until_ready().await;
    let _idea = env.start_program("file-idea");
    env.wait_for_request().await;
}

#[tokio::test]
async fn oneshot_and_dry_run_read_the_config_map_and_write_nothing() {
    let env = NodeEnv::new(shared().await, "dry").await;
    let oneshot = env.command(&["--oneshot"]).output().unwrap();
    assert_eq!(oneshot.status.code(), Some(0), "{}", String::from_utf8_lossy(&oneshot.stderr));
    env.apply_config("match_commands = ['dry-idea']\n").await;
    let mut agent = env.start_agent(&["--dry-run"]);
    let output = async |lines: usize| {
        eventually(&format!("{lines} lines of output"), TIMEOUT, async || {
            let output = std::fs::read_to_string(env.path("output")).unwrap();
            if output.lines().count() == lines { Ok(output) } else { Err(output) }
        })
        .await
    };
    let armed = output(1).await;
    assert!(armed.starts_with("{\"event\":\"armed\",\"detector\":\""), "{armed}");
    let idea = env.start_program("dry-idea");
    let oneshot = env.command(&["--oneshot"]).output().unwrap();
    assert_eq!(oneshot.status.code(), Some(10), "{}", String::from_utf8_lossy(&oneshot.stderr));
    let matched = output(2).await;
    assert!(matched.contains(&format!("{{\"event\":\"match\",\"pid\":{},", idea.pid())), "{matched}");
    agent.process.terminate();
    assert!(env.has_no_request().await);
    let requests = env.agent_requests().await;
    assert!(requests.0.iter().all(|entry| entry.resource == "configmaps" && !entry.is_write()), "{requests:?}");
    assert!(!env.path("state").exists());
}
