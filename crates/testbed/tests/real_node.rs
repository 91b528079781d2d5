//! A real kubelet makes this machine a Node, runs pods on it, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use fivespot_testbed::node::Image;
use fivespot_testbed::process::OWNER_PID;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::sync::Mutex;

const SOON: Duration = Duration::from_mins(5);
const IDEA: &str = "localhost/idea:test";

/// Who has a node in this very process, and looks at what is left of it, has no other beside it.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn plane(name: &str) -> ControlPlane {
    ControlPlane::start(ControlPlaneOptions::named(name).for_real_nodes()).await.unwrap()
}

async fn start_idea(plane: &ControlPlane, node: &str) -> u32 {
    let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
    let pod = serde_json::from_value(json!({
        "metadata": { "name": format!("idea-on-{node}") },
        "spec": {
            "nodeName": node,
            "hostNetwork": true,
            "containers": [{ "name": "idea", "image": IDEA, "imagePullPolicy": "Never" }],
        },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("the pod runs", SOON, async || {
        let status = pods.get(&format!("idea-on-{node}")).await.unwrap().status.unwrap();
        if status.phase.as_deref() == Some("Running") { Ok(()) } else { Err(json!(status)) }
    })
    .await;
    processes_of_pods(std::process::id())
        .into_iter()
        .find(|(_, comm)| comm == "idea")
        .expect("the host sees the pod's process")
        .0
}

/// What runs in the pods of a process' nodes, by id and name.
fn processes_of_pods(owner: u32) -> Vec<(u32, String)> {
    let ours = format!("/5spot-testbed-{owner}-");
    let process = |pid| {
        let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        // One that has ended and waits to be reaped has none.
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        (group.contains(&ours) && !line.is_empty()).then(|| (pid, comm.trim().to_owned()))
    };
    pids().filter_map(process).collect()
}

#[tokio::test]
async fn one_comes_up_after_the_other_and_nothing_is_left_behind() {
    if !RealNode::is_possible() {
        return;
    }
    let _alone = ALONE.lock().await;
    let plane = plane("real-node").await;
    let nodes: Api<Node> = Api::all(plane.client());
    for name in ["desk-01", "desk-02"] {
        let node = RealNode::start(&plane, name, &format!("remote-machine://test/{name}")).await.unwrap();
        let known = nodes.get(name).await.unwrap();
        assert_eq!(known.spec.unwrap().provider_id.unwrap(), format!("remote-machine://test/{name}"));
        let machine_id = fs::read_to_string("/etc/machine-id").unwrap();
        assert_eq!(known.status.unwrap().node_info.unwrap().machine_id, machine_id.trim());

        node.import(&Image::sleeper(IDEA, "idea").unwrap()).await.unwrap();
        let idea = start_idea(&plane, name).await;
        assert!(fs::read_to_string(format!("/proc/{idea}/cgroup")).unwrap().contains("/kubepods/"));

        node.stop().await;
        assert_eq!(processes_of_pods(std::process::id()), []);
        assert_eq!(left_behind(std::process::id()), [""; 0]);
    }
}

/// Directories and control groups of the nodes of a process.
fn left_behind(pid: u32) -> Vec<String> {
    let groups = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|it| it.path());
    let places = [Path::new("/run/5spot-testbed").to_owned(), Path::new("/sys/fs/cgroup").to_owned()];
    places
        .into_iter()
        .chain(groups)
        .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("{pid}-")) || name.starts_with(&format!("5spot-testbed-{pid}-")))
        .collect()
}

/// Set in a child of this test binary: where it reports that its pod runs.
const REPORT: &str = "FIVESPOT_TEST_REPORT";

/// Not a test of its own: what the others start in a process that they then kill.
#[tokio::test]
async fn a_process_that_waits_to_be_killed() {
    let Ok(report) = env::var(REPORT) else { return };
    let plane = plane("doomed-node").await;
    let node = RealNode::start(&plane, "desk-01", "remote-machine://test/desk-01").await.unwrap();
    node.import(&Image::sleeper(IDEA, "idea").unwrap()).await.unwrap();
    start_idea(&plane, "desk-01").await;
    fs::write(report, "").unwrap();
    std::future::pending::<()>().await;
}

/// Starts such a process, and waits until its pod runs.
async fn doomed() -> Child {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_process_that_waits_to_be_killed", "--nocapture"]).stdout(Stdio::null());
    let child = command.env(REPORT, &report).env(OWNER_PID, std::process::id().to_string()).spawn().unwrap();
    eventually("the child's pod runs", SOON, async || report.exists()).await;
    assert_eq!(processes_of_pods(child.id()).len(), 2, "the pod and its sandbox");
    child
}

#[tokio::test]
async fn a_killed_process_leaves_neither_pods_nor_anything_else_of_its_node() {
    if !RealNode::is_possible() {
        return;
    }
    let mut child = doomed().await;
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("nothing is left", SOON, async || {
        let (pods, rest) = (processes_of_pods(child.id()), left_behind(child.id()));
        if pods.is_empty() && rest.is_empty() { Ok(()) } else { Err(format!("{pods:?} {rest:?}")) }
    })
    .await;
}

#[tokio::test]
async fn what_is_left_when_the_caretaker_was_killed_too_goes_with_the_next_node() {
    if !RealNode::is_possible() {
        return;
    }
    let mut child = doomed().await;
    let place = format!("PLACE=/run/5spot-testbed/{}-0\0", child.id());
    let caretaker = pids().find(|pid| {
        let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        of("environ").contains(&place) && of("comm").trim() == "sh"
    });
    let caretaker = rustix::process::Pid::from_raw(caretaker.unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(caretaker, rustix::process::Signal::KILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(processes_of_pods(child.id()).len(), 2, "nobody was there to end them");

    let _alone = ALONE.lock().await;
    let plane = plane("after-a-doomed-node").await;
    let node = RealNode::start(&plane, "desk-01", "remote-machine://test/desk-01").await.unwrap();
    assert_eq!(processes_of_pods(child.id()), []);
    assert_eq!(left_behind(child.id()), [""; 0]);
    node.stop().await;
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok())
}
