//! No server outlives the process that started it, even if that process is killed.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use fivespot_testbed::process::OWNER_PID;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, Testbed};

const TIMEOUT: Duration = Duration::from_mins(2);
/// Set in a child of this test binary: the file to which it writes the process IDs of its servers.
const REPORT: &str = "FIVESPOT_TEST_REPORT";

/// Not a test: runs in a child process that other tests kill.
#[tokio::test]
async fn child_process_with_a_testbed() {
    let Ok(report) = env::var(REPORT) else { return };
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("killed")).await.unwrap();
    let pids: Vec<String> = testbed.pids().iter().map(u32::to_string).collect();
    let unfinished = format!("{report}.unfinished");
    fs::write(&unfinished, pids.join("\n")).unwrap();
    fs::rename(unfinished, report).unwrap();
    std::future::pending::<()>().await;
}

struct ChildProcess {
    process: Child,
    directory: tempfile::TempDir,
}

impl ChildProcess {
    /// Owned by this process, so that the child exits with it.
    fn start() -> Self {
        Self::start_owned_by(std::process::id())
    }

    fn start_owned_by(owner: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "child_process_with_a_testbed", "--nocapture"])
            .env(REPORT, directory.path().join("pids"))
            .env(OWNER_PID, owner.to_string())
            .stdout(Stdio::null());
        Self { process: command.spawn().unwrap(), directory }
    }

    async fn servers(&self) -> Vec<u32> {
        let report = self.directory.path().join("pids");
        let text = eventually("the child reports its servers", TIMEOUT, async || fs::read_to_string(&report)).await;
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn killed_process_leaves_no_server_and_the_next_run_works() {
    let mut child = ChildProcess::start();
    let servers = child.servers().await;
    assert_eq!(servers.len(), 6, "etcd, API server, controller manager, scheduler, Cluster API, KWOK");
    assert!(servers.iter().all(|pid| is_running(*pid)));
    child.process.kill().unwrap();
    await_exit(&servers).await;

    let plane = ControlPlane::start(ControlPlaneOptions::named("next")).await.unwrap();
    plane.client().apiserver_version().await.unwrap();
    let servers = plane.pids();
    drop(plane);
    assert!(!servers.into_iter().any(is_running), "dropping a control plane kills its servers before it returns");
}

#[tokio::test]
async fn process_killed_during_startup_leaves_no_server() {
    let mut child = ChildProcess::start();
    let servers = eventually("the first server runs", TIMEOUT, async || {
        let servers = children_of(child.process.id());
        if servers.is_empty() { None } else { Some(servers) }
    })
    .await;
    child.process.kill().unwrap();
    await_exit(&servers).await;
}

#[tokio::test]
async fn process_exits_with_its_owner() {
    let mut owner = Command::new("sleep").arg("1000").spawn().unwrap();
    let child = ChildProcess::start_owned_by(owner.id());
    let servers = child.servers().await;
    owner.kill().unwrap();
    owner.wait().unwrap();
    await_exit(&[servers, vec![child.process.id()]].concat()).await;
}

#[tokio::test]
async fn stop_ends_every_server_and_keeps_the_logs() {
    let plane = ControlPlane::start(ControlPlaneOptions::named("orderly")).await.unwrap();
    let (servers, run) = (plane.pids(), plane.run_dir().path().to_owned());
    plane.stop().await;
    assert!(!servers.into_iter().any(is_running));
    assert!(!run.join("etcd").exists(), "the data is removed");
    assert!(run.join("logs/kube-apiserver.log").exists(), "the logs are kept");
}

async fn await_exit(pids: &[u32]) {
    eventually("every server has exited", TIMEOUT, async || {
        let running: Vec<u32> = pids.iter().copied().filter(|pid| is_running(*pid)).collect();
        if running.is_empty() { Ok(()) } else { Err(format!("{running:?}")) }
    })
    .await;
}

/// Whether a process exists and is not a zombie.
fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent)).collect()
}

/// State and parent process ID.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may itself contain parentheses and spaces.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
