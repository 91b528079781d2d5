//! `cargo xtask sandbox`, as a newcomer has it: it comes up, everything that it tells them to try works, and Ctrl-C leaves
//! nothing running.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fivespot_testbed::process::{OWNER_PID, Signal};
use fivespot_testbed::wait::eventually;
use rustix::process::{Pid, kill_process};

/// Generous: it builds the product first, on two busy cores.
const UP_WITHIN: Duration = Duration::from_mins(15);
const SOON: Duration = Duration::from_mins(2);

struct Sandbox {
    process: Child,
    directory: tempfile::TempDir,
}

impl Sandbox {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(directory.path().join(name)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .arg("sandbox")
            // Whatever happens to this test, its sandbox does not stay.
            .env(OWNER_PID, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap();
        Sandbox { process, directory }
    }

    fn out(&self) -> String {
        fs::read_to_string(self.directory.path().join("out")).unwrap()
    }

    fn err(&self) -> String {
        fs::read_to_string(self.directory.path().join("err")).unwrap()
    }

    /// What it says when it is up.
    async fn guide(&mut self) -> String {
        eventually("the sandbox is up", UP_WITHIN, async || {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "it ended early ({ended:?}): {}", self.err());
            let out = self.out();
            if out.contains("Ctrl-C ends it") { Ok(out) } else { Err(self.err()) }
        })
        .await
    }

    fn servers(&self) -> Vec<u32> {
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == self.process.id())).collect()
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A terminal beside the sandbox, set up as the guide says.
struct Terminal {
    setup: String,
}

impl Terminal {
    fn new(guide: &str) -> Self {
        let setup: Vec<&str> = lines(guide).filter(|it| it.starts_with("export ")).collect();
        assert_eq!(setup.len(), 2, "{guide}");
        Terminal { setup: setup.join("\n") }
    }

    fn start(&self, command: &str, out: &Path) -> Child {
        let script = format!("{}\nexec {command}", self.setup);
        let out = File::create(out).unwrap();
        let errors = out.try_clone().unwrap();
        Command::new("sh").args(["-euc", &script]).stdout(out).stderr(errors).spawn().unwrap()
    }

    fn run(&self, command: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let status = self.start(command, &out).wait().unwrap();
        let printed = fs::read_to_string(out).unwrap();
        assert!(status.success(), "{command}: {printed}");
        printed
    }

    /// Starts a command that does not end by itself, and ends it when it has printed something.
    async fn glance(&self, command: &str) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let mut child = self.start(command, &out);
        eventually(&format!("{command} prints something"), SOON, async || {
            fs::read_to_string(&out).is_ok_and(|it| it.contains("desk"))
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    async fn until(&self, machine: &str, phase: &str) {
        eventually(&format!("{machine} is {phase}"), SOON, async || {
            let row = self.run(&format!("kubectl get sm {machine} --no-headers"));
            if row.split_whitespace().nth(1) == Some(phase) { Ok(()) } else { Err(row) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_newcomer_tries_everything_and_ends_it() {
    let mut sandbox = Sandbox::start();
    let guide = sandbox.guide().await;
    let terminal = Terminal::new(&guide);

    let machines = terminal.run("kubectl get sm");
    let is_in = |line: &str| line.starts_with("desk ") && line.split_whitespace().nth(1) == Some("Active");
    assert!(machines.lines().any(is_in), "{machines}");
    assert!(machines.contains("business-hours-worker "), "{machines}");

    let commands: Vec<&str> = lines(&guide).filter(|it| it.starts_with("kubectl ")).collect();
    assert!(commands.len() >= 8, "{guide}");
    for command in commands {
        if command.contains("--watch") {
            terminal.glance(command).await;
            continue;
        }
        let printed = terminal.run(command);
        assert!(!printed.is_empty(), "{command}");
        // Each change is given the time to be seen, as a person gives it.
        match command {
            it if it.contains("\"killSwitch\":true") => terminal.until("desk", "Terminated").await,
            it if it.contains("\"killSwitch\":false") => terminal.until("desk", "Active").await,
            it if it.contains("\"enabled\":false") => terminal.until("desk", "Disabled").await,
            it if it.contains("\"enabled\":true") => terminal.until("desk", "Active").await,
            it if it.contains("reclaim-requested") => terminal.until("desk", "Disabled").await,
            it if it.contains("0-23") => terminal.until("business-hours-worker", "Active").await,
            it if it.contains("Mars") => terminal.until("business-hours-worker", "Error").await,
            _ => {}
        }
    }
    for path in guide.lines().filter_map(|it| it.split_once(":  ")).map(|(_, it)| it.split_whitespace().next().unwrap())
    {
        assert!(path.starts_with("http://") || PathBuf::from(path).exists(), "{path}");
    }

    let servers = sandbox.servers();
    assert!(
        servers.len() >= 7,
        "etcd, API server, controller manager, scheduler, Cluster API, KWOK, 5spot: {servers:?}"
    );
    sandbox.interrupt();
    let status = eventually("the sandbox ends", SOON, async || sandbox.process.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0), "{}", sandbox.err());
    let left: Vec<u32> = servers.into_iter().filter(|pid| is_running(*pid)).collect();
    assert_eq!(left, Vec::<u32>::new(), "{}", sandbox.err());
}

#[tokio::test]
async fn a_sandbox_that_is_interrupted_while_it_starts_ends_too() {
    let mut sandbox = Sandbox::start();
    eventually("it has begun", SOON, async || sandbox.err().contains("==> ")).await;
    sandbox.interrupt();
    let status = eventually("the sandbox ends", SOON, async || sandbox.process.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0), "{}", sandbox.err());
}

/// The commands of the guide, each without what it is good for.
fn lines(guide: &str) -> impl Iterator<Item = &str> {
    guide.lines().filter_map(|it| it.strip_prefix("  ")).map(|it| it.split("  #").next().unwrap_or(it).trim())
}

/// A zombie does not run: it only waits for someone to ask how it ended.
fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
