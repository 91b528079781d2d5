//! What the DaemonSet makes of the agent.

use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;

use crate::process::{Program, children_of, listening, status_of};
use crate::stage::{SOON, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn it_lands_where_the_label_is_whatever_the_taints_and_leaves_with_it() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-label").await;
    let before = stage.daemon_set_once(|status| status.observed_generation.is_some()).await;
    assert_eq!(before.desired_number_scheduled, 0, "nobody has labelled the Node");

    stage.taint_node().await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    let pid = stage.pid_of(&agent).await;
    stage.label_node("disabled").await;
    stage.daemon_set_once(|status| status.current_number_scheduled == 0).await;
    eventually("the agent is gone", SOON, async || status_of(pid).is_none()).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_when_it_is_armed_and_not_before() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-ready").await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    stage.logs(&agent, "that nobody has told it what to look for", |it| it["message"] == "nothing to look for").await;
    let unarmed = stage.daemon_set_once(|status| status.current_number_scheduled == 1).await;
    assert_eq!(unarmed.number_ready, 0);

    stage.look_for("idea").await;
    stage.daemon_set_once(|status| status.number_ready == 1).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_asks_for_the_machine_when_its_owner_starts_a_program_and_not_when_a_pod_does() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-programs").await;
    let in_a_pod = stage.run_idea_in_a_pod().await;
    stage.look_for("idea").await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    let armed = stage.logs(&agent, "that it is armed", |it| it["message"] == "armed").await;
    assert_eq!(armed["detector"], "netlink", "{armed}");

    let idea = Program::start_as_nobody("idea");
    // It would have found the pod's, which was there before, first.
    let found = stage.logs(&agent, "a match", |it| it["message"] == "match").await;
    assert_eq!(found["pid"], idea.pid(), "the pod's own is {in_a_pod}: {found}");
    stage.requested("idea").await;
    stage.end().await;
}

/// What the manifest says of it is what the kernel knows of it.
#[tokio::test(flavor = "multi_thread")]
async fn it_runs_with_one_capability_on_a_root_that_it_cannot_write() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-rights").await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    // By then it listens to the kernel and to the API server.
    stage.logs(&agent, "that nobody has told it what to look for", |it| it["message"] == "nothing to look for").await;
    let pid = stage.pid_of(&agent).await;
    let status = status_of(pid).unwrap();
    let of = |field: &str| status.lines().find_map(|it| it.strip_prefix(field)).unwrap().trim().to_owned();
    let net_admin = format!("{:016x}", 1 << 12);
    assert_eq!((of("CapEff:"), of("CapBnd:")), (net_admin.clone(), net_admin));
    assert_eq!(of("NoNewPrivs:"), "1");
    assert_eq!(of("Seccomp:"), "2", "a filter");
    assert_eq!(of("Uid:"), "0\t0\t0\t0");
    assert_eq!(children_of(pid), "", "it starts nothing");
    assert_eq!(listening(pid), Vec::<String>::new(), "nobody can speak to it");
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts.lines().find(|it| it.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|it| it == "ro"), "{root}");
    stage.end().await;
}
