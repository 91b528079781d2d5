//! A real kubelet registers this machine as a Node, runs pods on it, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

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

const TIMEOUT: Duration = Duration::from_mins(5);
const IDEA: &str = "localhost/idea:test";

/// Held by tests that run a node in this process and check what it leaves behind.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

async fn plane(name: &str) -> ControlPlane {
    ControlPlane::start(ControlPlaneOptions::named(name).for_real_nodes()).await.unwrap()
}

async fn run_idea_pod(plane: &ControlPlane, node: &str) -> u32 {
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
    eventually("the pod runs", TIMEOUT, async || {
        let status = pods.get(&format!("idea-on-{node}")).await.unwrap().status.unwrap();
        if status.phase.as_deref() == Some("Running") { Ok(()) } else { Err(json!(status)) }
    })
    .await;
    pod_processes(std::process::id())
        .into_iter()
        .find(|(_, comm)| comm == "idea")
        .expect("the pod's process is visible on the host")
        .0
}

/// ID and name of the processes in pods on the nodes of a test process.
fn pod_processes(owner: u32) -> Vec<(u32, String)> {
    let cgroup_prefix = format!("/5spot-testbed-{owner}-");
    let process = |pid| {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        // A zombie has no command line.
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        (cgroup.contains(&cgroup_prefix) && !cmdline.is_empty()).then(|| (pid, comm.trim().to_owned()))
    };
    pids().filter_map(process).collect()
}

#[tokio::test]
async fn nodes_start_one_after_the_other_and_leave_nothing_behind() {
    if !RealNode::is_possible() {
        return;
    }
    let _exclusive = EXCLUSIVE.lock().await;
    let plane = plane("real-node").await;
    let nodes: Api<Node> = Api::all(plane.client());
    for name in ["desk-01", "desk-02"] {
        let node = RealNode::start(&plane, name, &format!("remote-machine://test/{name}")).await.unwrap();
        let object = nodes.get(name).await.unwrap();
        assert_eq!(object.spec.unwrap().provider_id.unwrap(), format!("remote-machine://test/{name}"));
        let machine_id = fs::read_to_string("/etc/machine-id").unwrap();
        assert_eq!(object.status.unwrap().node_info.unwrap().machine_id, machine_id.trim());

        node.import(&Image::sleeper(IDEA, "idea").unwrap()).await.unwrap();
        let idea = run_idea_pod(&plane, name).await;
        assert!(fs::read_to_string(format!("/proc/{idea}/cgroup")).unwrap().contains("/kubepods/"));

        node.stop().await;
        assert_eq!(pod_processes(std::process::id()), []);
        assert_eq!(left_behind(std::process::id()), [""; 0]);
    }
}

/// Directories and cgroups of the nodes of a test process.
fn left_behind(pid: u32) -> Vec<String> {
    let cgroups = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|it| it.path());
    let parents = [Path::new("/run/5spot-testbed").to_owned(), Path::new("/sys/fs/cgroup").to_owned()];
    parents
        .into_iter()
        .chain(cgroups)
        .flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten())
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("{pid}-")) || name.starts_with(&format!("5spot-testbed-{pid}-")))
        .collect()
}

/// Set in a child of this test binary: the file that it creates once its pod runs.
const REPORT: &str = "FIVESPOT_TEST_REPORT";

/// Not a test: runs in a child process that other tests kill.
#[tokio::test]
async fn child_process_with_a_node() {
    let Ok(report) = env::var(REPORT) else { return };
    let plane = plane("killed-node").await;
    let node = RealNode::start(&plane, "desk-01", "remote-machine://test/desk-01").await.unwrap();
    node.import(&Image::sleeper(IDEA, "idea").unwrap()).await.unwrap();
    run_idea_pod(&plane, "desk-01").await;
    fs::write(report, "").unwrap();
    std::future::pending::<()>().await;
}

/// Starts a child process with a node, and waits until its pod runs.
async fn start_child() -> Child {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "child_process_with_a_node", "--nocapture"]).stdout(Stdio::null());
    let child = command.env(REPORT, &report).env(OWNER_PID, std::process::id().to_string()).spawn().unwrap();
    eventually("the child's pod runs", TIMEOUT, async || report.exists()).await;
    assert_eq!(pod_processes(child.id()).len(), 2, "the pod and its sandbox");
    child
}

#[tokio::test]
async fn killed_process_leaves_nothing_of_its_node() {
    if !RealNode::is_possible() {
        return;
    }
    let mut child = start_child().await;
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("nothing is left behind", TIMEOUT, async || {
        let (pods, rest) = (pod_processes(child.id()), left_behind(child.id()));
        if pods.is_empty() && rest.is_empty() { Ok(()) } else { Err(format!("{pods:?} {rest:?}")) }
    })
    .await;
}

#[tokio::test]
async fn next_node_cleans_up_if_the_cleanup_was_killed_too() {
    if !RealNode::is_possible() {
        return;
    }
    let mut child = start_child().await;
    let variable = format!("NODE_DIR=/run/5spot-testbed/{}-0\0", child.id());
    let cleanup = pids().find(|pid| {
        let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        of("environ").contains(&variable) && of("comm").trim() == "sh"
    });
    let cleanup = rustix::process::Pid::from_raw(cleanup.unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(cleanup, rustix::process::Signal::KILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pod_processes(child.id()).len(), 2, "no process was left to kill them");

    let _exclusive = EXCLUSIVE.lock().await;
    let plane = plane("after-a-killed-node").await;
    let node = RealNode::start(&plane, "desk-01", "remote-machine://test/desk-01").await.unwrap();
    assert_eq!(pod_processes(child.id()), []);
    assert_eq!(left_behind(child.id()), [""; 0]);
    node.stop().await;
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok())
}
