//! What the DaemonSet makes of the agent.

use fivespot_testbed::RealNode;
use fivespot_testbed::wait::eventually;

use crate::process::{Program, status_of};
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
async fn it_sees_its_hosts_programs_by_the_kernels_events_and_not_those_of_pods() {
    if !RealNode::is_possible() {
        return;
    }
    let stage = Stage::set("real-node-programs").await;
    let in_a_pod = stage.run_idea_in_a_pod().await;
    stage.label_node("enabled").await;
    let agent = stage.agent().await;
    stage.prints(&agent, r#"{"event":"armed","detector":"netlink"}"#).await;

    let idea = Program::start_as_nobody("idea");
    let found = stage.prints(&agent, &format!(r#"{{"event":"match","pid":{},"#, idea.pid())).await;
    assert!(!found.contains(&format!("\"pid\":{in_a_pod},")), "the pod's own does not count: {found}");
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
    let pid = stage.pid_of(&agent).await;
    let status = status_of(pid).unwrap();
    let of = |field: &str| status.lines().find_map(|it| it.strip_prefix(field)).unwrap().trim().to_owned();
    let net_admin = format!("{:016x}", 1 << 12);
    assert_eq!((of("CapEff:"), of("CapBnd:")), (net_admin.clone(), net_admin));
    assert_eq!(of("NoNewPrivs:"), "1");
    assert_eq!(of("Seccomp:"), "2", "a filter");
    assert_eq!(of("Uid:"), "0\t0\t0\t0");
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let root = mounts.lines().find(|it| it.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|it| it == "ro"), "{root}");
    stage.end().await;
}
