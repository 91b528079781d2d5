//! No server outlives the process that started it, however that process ends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use fivespot_testbed::process::OWNER_PID;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, Testbed};

const SOON: Duration = Duration::from_mins(2);
/// Set in a child of this test binary: where it reports the process ids of its servers.
const REPORT: &str = "FIVESPOT_TEST_REPORT";

/// Not a test of its own: what the others start in a process that they then kill.
#[tokio::test]
async fn a_process_that_waits_to_be_killed() {
    let Ok(report) = env::var(REPORT) else { return };
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("doomed")).await.unwrap();
    let pids: Vec<String> = testbed.pids().iter().map(u32::to_string).collect();
    let unfinished = format!("{report}.unfinished");
    fs::write(&unfinished, pids.join("\n")).unwrap();
    fs::rename(unfinished, report).unwrap();
    std::future::pending::<()>().await;
}

struct Doomed {
    process: Child,
    directory: tempfile::TempDir,
}

impl Doomed {
    /// Owned by this process: whatever happens to it, the child does not stay.
    fn start() -> Self {
        Self::start_owned_by(std::process::id())
    }

    fn start_owned_by(owner: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "a_process_that_waits_to_be_killed", "--nocapture"])
            .env(REPORT, directory.path().join("pids"))
            .env(OWNER_PID, owner.to_string())
            .stdout(Stdio::null());
        Self { process: command.spawn().unwrap(), directory }
    }

    async fn servers(&self) -> Vec<u32> {
        let report = self.directory.path().join("pids");
        let text = eventually("the child reports its servers", SOON, async || fs::read_to_string(&report)).await;
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_killed_process_leaves_no_server_and_the_next_run_works() {
    let mut doomed = Doomed::start();
    let servers = doomed.servers().await;
    assert_eq!(servers.len(), 6, "etcd, API server, controller manager, scheduler, Cluster API, KWOK");
    assert!(servers.iter().all(|pid| is_running(*pid)));
    doomed.process.kill().unwrap();
    all_end(&servers).await;

    let plane = ControlPlane::start(ControlPlaneOptions::named("next")).await.unwrap();
    plane.client().apiserver_version().await.unwrap();
    let servers = plane.pids();
    drop(plane);
    assert!(!servers.into_iter().any(is_running), "dropping a control plane ends its servers before it returns");
}

#[tokio::test]
async fn a_process_killed_while_it_starts_servers_leaves_none() {
    let mut doomed = Doomed::start();
    let servers = eventually("the first server runs", SOON, async || {
        let servers = children_of(doomed.process.id());
        if servers.is_empty() { None } else { Some(servers) }
    })
    .await;
    doomed.process.kill().unwrap();
    all_end(&servers).await;
}

#[tokio::test]
async fn a_process_whose_owner_is_killed_ends_with_its_servers() {
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    let doomed = Doomed::start_owned_by(owner.id());
    let servers = doomed.servers().await;
    owner.kill().unwrap();
    owner.wait().unwrap();
    all_end(&[servers, vec![doomed.process.id()]].concat()).await;
}

#[tokio::test]
async fn an_orderly_stop_ends_every_server() {
    let plane = ControlPlane::start(ControlPlaneOptions::named("orderly")).await.unwrap();
    let (servers, run) = (plane.pids(), plane.run_dir().path().to_owned());
    plane.stop().await;
    assert!(!servers.into_iter().any(is_running));
    assert!(!run.join("etcd").exists(), "the data goes");
    assert!(run.join("logs/kube-apiserver.log").exists(), "the logs stay");
}

async fn all_end(pids: &[u32]) {
    eventually("every server has ended", SOON, async || {
        let left: Vec<u32> = pids.iter().copied().filter(|pid| is_running(*pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// A zombie does not run: it only waits for someone to ask how it ended.
fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
