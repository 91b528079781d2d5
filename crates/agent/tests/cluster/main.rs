//! The agent in a cluster: a real API server, under the account, the permissions and the policy that are shipped, and with a
//! token that names its Node, as a kubelet gives it to a pod. They need what the tests on the kernel need.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod away;
mod gate;
mod orders;
mod probe;
mod refusals;
mod stage;
mod token;

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;

use serde_json::json;

use stage::{REASON, REQUESTED_AT, SOON, Stage, shared};

/// A request is the three annotations, beside whatever else is there, in one write.
#[tokio::test]
async fn a_program_that_is_started_is_a_request_on_the_node() {
    for detector in ["netlink", "poll"] {
        let node = format!("start-{detector}");
        let stage = Stage::new(shared().await, &node).await;
        let orders = format!("match_commands = ['{node}']\nmatch_argv_substrings = ['{node} 6']\n");
        let agent = stage.armed(&orders, &["--detector", detector]).await;
        let before = jiff::Timestamp::now().as_second();
        let _idea = stage.start(&node);
        let annotations = stage.requested().await;
        assert_eq!(annotations["kept"], "yes");
        assert_eq!(annotations[REASON], format!("process-match: {node}"));
        let at: jiff::Timestamp = annotations[REQUESTED_AT].as_str().unwrap().parse().unwrap();
        assert!(at.as_second() >= before);

        agent.says("the request is stored").await;
        let _another = stage.start(&node);
        agent.says_times("\"match\"", 2).await;
        let patches = stage.asked().await.filter(|it| it.verb == "patch");
        assert_eq!(stage.patches().await, 1, "one request, one write: {patches:?}");
        let patch = &patches.0[0];
        assert!(patch.uri.contains("fieldManager=5spot-reclaim-agent"), "{patch:?}");
        assert!(patch.user_agent.starts_with("5spot-reclaim-agent/"), "{patch:?}");
        agent.stop();
    }
}

#[tokio::test]
async fn a_program_that_runs_already_is_a_request_at_arming() {
    let stage = Stage::new(shared().await, "early").await;
    let _idea = stage.start("early-idea");
    let _agent = stage.armed("match_commands = ['early-idea']\n", &[]).await;
    stage.requested().await;
}

#[tokio::test]
async fn the_first_annotations_of_a_node_are_the_request() {
    let stage = Stage::with_metadata(shared().await, "bare", &json!({})).await;
    let agent = stage.armed("match_commands = ['bare-idea']\n", &[]).await;
    let _idea = stage.start("bare-idea");
    let annotations = stage.requested().await;
    assert_eq!(annotations[REASON], "process-match: bare-idea");
    assert_eq!(annotations.as_object().unwrap().len(), 3);
    assert!(!agent.log().contains("not stored yet"), "no trouble: {}", agent.log());
}

/// It is told when the agent is armed already, and again when it would matter.
#[tokio::test]
async fn on_another_machine_nothing_is_written_and_both_machines_are_named() {
    let stage = Stage::new(shared().await, "stranger").await;
    stage.pretend_to_be("somebody-else\n");
    let mut agent = stage.armed("match_commands = ['stranger-idea']\n", &[]).await;
    let told = "Node 'stranger' is the machine 'machine-of-stranger', and this is 'somebody-else': nothing was written";
    agent.says(told).await;
    probe::is_not_ready(&stage, told).await;

    let _idea = stage.start("stranger-idea");
    agent.says_times(told, 2).await;
    assert!(stage.is_not_requested().await);
    assert!(agent.lives());
    assert_eq!(stage.patches().await, 1, "it is not tried again by itself");
}

/// A machine that was set up anew, or somebody who took its name.
#[tokio::test]
async fn a_node_of_the_same_name_that_is_another_machine_is_left_alone_until_it_is_ours_again() {
    let stage = Stage::new(shared().await, "replaced").await;
    stage.act_as(&stage.pod("replaced").await);
    let agent = stage.armed("match_commands = ['replaced-idea']\n", &[]).await;
    stage.remove_node().await;
    stage.make_node_again("another").await;
    let idea = stage.start("replaced-idea");
    let told = "Node 'replaced' is the machine 'another', and this is 'machine-of-replaced': nothing was written";
    agent.says(told).await;
    assert!(stage.is_not_requested().await);
    probe::is_not_ready(&stage, told).await;
    let written = stage.asked().await.filter(|it| it.verb == "patch" && it.succeeded());
    assert!(written.is_empty(), "{written:?}");

    stage.remove_node().await;
    stage.make_node_again("machine-of-replaced").await;
    stage.requested().await;
    agent.says("the Node is this machine's after all").await;
    probe::is_ready(&stage).await;
    assert_eq!(agent.log().matches(told).count(), 1, "{}", agent.log());
    drop(idea);
}

/// Whoever starts a program may call it anything. The log stays one object a line, and the API server takes what it gets.
#[tokio::test]
async fn names_that_are_made_to_do_harm_do_none() {
    let stage = Stage::new(shared().await, "hostile").await;
    let pattern = format!("hostile-idea\n\u{1b}[2J\"'\\\u{7f}\u{9b}{}", "\u{1d11e}".repeat(230));
    let toml = serde_json::to_string(&pattern).unwrap().replace('\u{7f}', "\\u007f").replace('\u{9b}', "\\u009b");
    let agent = stage.armed(&format!("match_argv_substrings = [{toml}]\n"), &[]).await;
    let name = std::ffi::OsStr::from_bytes(b"hostile\n\x1b\x7f\xc2\x9b\xff\"");
    let program = stage.path("x").with_file_name(name);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut command = std::process::Command::new(program);
    command.arg0(format!("/opt/{pattern}/bin")).arg("0".repeat(100_000)).arg("600");
    let _hostile = stage::Running(command.spawn().unwrap());
    let annotations = stage.requested().await;
    assert_eq!(annotations[REASON], format!("process-match: {pattern}"));
    agent.says("the request is stored").await;
    let log = agent.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let found = lines.iter().find(|it| it["message"] == "match").unwrap();
    assert_eq!((&found["comm"], &found["matched"]), (&json!("hostile\n\u{1b}\u{7f}\u{9b}\u{fffd}\""), &json!(pattern)));
    assert!(!log.contains(|it: char| it != '\n' && it.is_control()), "{log:?}");
}

#[tokio::test]
async fn without_the_comparison_the_nodes_name_is_trusted() {
    let stage = Stage::new(shared().await, "trusted").await;
    stage.pretend_to_be("somebody-else\n");
    let _agent = stage.armed("match_commands = ['trusted-idea']\n", &["--skip-host-id-check"]).await;
    let _idea = stage.start("trusted-idea");
    assert_eq!(stage.requested().await["kept"], "yes");
}

#[tokio::test]
async fn a_request_that_was_cleared_is_made_again_while_the_program_runs() {
    let stage = Stage::new(shared().await, "again").await;
    let agent = stage.armed("match_commands = ['again-idea']\n", &[]).await;
    let _idea = stage.start("again-idea");
    stage.requested().await;
    agent.says("the request is stored").await;
    stage.clear().await;
    agent.says("the request has been cleared").await;
    stage.requested().await;
    agent.says_times("the request is stored", 2).await;
    assert_eq!(stage.patches().await, 2);
}

/// The watch aside; its renewal is none of a test's business either.
#[tokio::test]
async fn while_nothing_happens_nothing_is_asked() {
    let stage = Stage::new(shared().await, "quiet").await;
    let agent = stage.armed("match_commands = ['quiet-idea']\n", &[]).await;
    fivespot_testbed::wait::eventually("it has compared machines", SOON, async || {
        stage.asked().await.filter(|it| it.verb == "get").len() == 1
    })
    .await;
    let before = stage.asked().await;
    for _ in 0..200 {
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    }
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    assert_eq!(stage.asked().await, before);
    let _idea = stage.start("quiet-idea");
    stage.requested().await;
    agent.says("the request is stored").await;
    assert_eq!(stage.patches().await, 1);
}

#[tokio::test]
async fn a_right_that_is_missing_is_told_with_the_words_of_the_policy() {
    let stage = Stage::new(shared().await, "unbound").await;
    let unbound = stage.plane.service_account(stage::NAMESPACE, "5spot-reclaim-agent").await.unwrap();
    std::fs::write(stage.path("kubeconfig"), unbound.kubeconfig()).unwrap();
    let mut agent = stage.armed("match_commands = ['unbound-idea']\n", &[]).await;
    let _idea = stage.start("unbound-idea");
    agent.says("the token of the reclaim agent names no Node").await;
    assert!(stage.is_not_requested().await);
    assert!(agent.lives());
}

#[tokio::test]
async fn a_file_in_place_of_the_config_map_asks_for_the_machine_too() {
    let stage = Stage::new(shared().await, "file").await;
    let path = stage.path("reclaim.toml");
    std::fs::write(&path, "match_commands = ['file-idea']\n").unwrap();
    let agent = stage.agent(&["--config", path.to_str().unwrap()]);
    agent.says("\"armed\"").await;
    let _idea = stage.start("file-idea");
    stage.requested().await;
}

#[tokio::test]
async fn one_look_and_a_dry_run_read_the_config_map_and_write_nothing() {
    let stage = Stage::new(shared().await, "dry").await;
    let once = stage.command(&["--oneshot"]).output().unwrap();
    assert_eq!(once.status.code(), Some(0), "{}", String::from_utf8_lossy(&once.stderr));
    let agent = stage.armed("match_commands = ['dry-idea']\n", &["--dry-run"]).await;
    let idea = stage.start("dry-idea");
    let once = stage.command(&["--oneshot"]).output().unwrap();
    assert_eq!(once.status.code(), Some(10), "{}", String::from_utf8_lossy(&once.stderr));
    let told = fivespot_testbed::wait::eventually("the match is told", SOON, async || {
        let told = std::fs::read_to_string(stage.path("output")).unwrap();
        (told.lines().count() == 2).then_some(told)
    })
    .await;
    assert!(told.starts_with("{\"event\":\"armed\",\"detector\":\""), "{told}");
    assert!(told.contains(&format!("{{\"event\":\"match\",\"pid\":{},", idea.0.id())), "{told}");
    agent.stop();
    assert!(stage.is_not_requested().await);
    let asked = stage.asked().await;
    assert!(asked.0.iter().all(|it| it.resource == "configmaps" && !it.is_write()), "{asked:?}");
    assert!(!stage.path("state").exists());
}
