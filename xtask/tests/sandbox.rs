//! `cargo xtask sandbox` starts, every command that it suggests works, and Ctrl-C leaves nothing running.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fivespot_testbed::process::{OWNER_PID, Signal};
use fivespot_testbed::wait::eventually;
use rustix::process::{Pid, kill_process};

/// Generous, because the sandbox builds the product first, on two busy cores.
const START_TIMEOUT: Duration = Duration::from_mins(15);
const TIMEOUT: Duration = Duration::from_mins(2);

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
            // The sandbox exits with this test, even if the test is killed.
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

    /// Waits for the instructions, which the sandbox prints when it is ready.
    async fn instructions(&mut self) -> String {
        eventually("the sandbox is ready", START_TIMEOUT, async || {
            let status = self.process.try_wait().unwrap();
            assert!(status.is_none(), "the sandbox exited ({status:?}): {}", self.err());
            let out = self.out();
            if out.contains("Press Ctrl-C") { Ok(out) } else { Err(self.err()) }
        })
        .await
    }

    fn children(&self) -> Vec<u32> {
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

/// A terminal, set up according to the instructions.
struct Terminal {
    setup: String,
}

impl Terminal {
    fn new(instructions: &str) -> Self {
        let setup: Vec<&str> = commands(instructions).filter(|it| it.starts_with("export ")).collect();
        assert_eq!(setup.len(), 2, "{instructions}");
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

    /// Runs a command that does not exit by itself until it has printed something.
    async fn run_until_output(&self, command: &str) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let mut child = self.start(command, &out);
        eventually(&format!("{command} prints something"), TIMEOUT, async || {
            fs::read_to_string(&out).is_ok_and(|it| it.contains("desk"))
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    async fn await_phase(&self, machine: &str, phase: &str) {
        eventually(&format!("{machine} is {phase}"), TIMEOUT, async || {
            let row = self.run(&format!("kubectl get sm {machine} --no-headers"));
            if row.split_whitespace().nth(1) == Some(phase) { Ok(()) } else { Err(row) }
        })
        .await;
    }
}

#[tokio::test]
async fn every_suggested_command_works_and_ctrl_c_stops_everything() {
    let mut sandbox = Sandbox::start();
    let instructions = sandbox.instructions().await;
    let terminal = Terminal::new(&instructions);

    let machines = terminal.run("kubectl get sm");
    let is_active = |line: &str| line.starts_with("desk ") && line.split_whitespace().nth(1) == Some("Active");
    assert!(machines.lines().any(is_active), "{machines}");
    assert!(machines.contains("business-hours-worker "), "{machines}");

    let suggested: Vec<&str> = commands(&instructions).filter(|it| it.starts_with("kubectl ")).collect();
    assert!(suggested.len() >= 8, "{instructions}");
    for command in suggested {
        if command.contains("--watch") {
            terminal.run_until_output(command).await;
            continue;
        }
        let printed = terminal.run(command);
        assert!(!printed.is_empty(), "{command}");
        // Wait for the effect of each change before the next one.
        match command {
            it if it.contains("\"killSwitch\":true") => terminal.await_phase("desk", "Terminated").await,
            it if it.contains("\"killSwitch\":false") => terminal.await_phase("desk", "Active").await,
            it if it.contains("\"enabled\":false") => terminal.await_phase("desk", "Disabled").await,
            it if it.contains("\"enabled\":true") => terminal.await_phase("desk", "Active").await,
            it if it.contains("reclaim-requested") => terminal.await_phase("desk", "Disabled").await,
            it if it.contains("0-23") => terminal.await_phase("business-hours-worker", "Active").await,
            it if it.contains("Mars") => terminal.await_phase("business-hours-worker", "Error").await,
            _ => {}
        }
    }
    for path in
        instructions.lines().filter_map(|it| it.split_once(":  ")).map(|(_, it)| it.split_whitespace().next().unwrap())
    {
        assert!(path.starts_with("http://") || PathBuf::from(path).exists(), "{path}");
    }

    let children = sandbox.children();
    assert!(
        children.len() >= 7,
        "etcd, API server, controller manager, scheduler, Cluster API, KWOK, 5spot: {children:?}"
    );
    sandbox.interrupt();
    let status = eventually("the sandbox exits", TIMEOUT, async || sandbox.process.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0), "{}", sandbox.err());
    let running: Vec<u32> = children.into_iter().filter(|pid| is_running(*pid)).collect();
    assert_eq!(running, Vec::<u32>::new(), "{}", sandbox.err());
}

#[tokio::test]
async fn ctrl_c_during_startup_stops_the_sandbox() {
    let mut sandbox = Sandbox::start();
    eventually("the sandbox prints its first step", TIMEOUT, async || sandbox.err().contains("==> ")).await;
    sandbox.interrupt();
    let status = eventually("the sandbox exits", TIMEOUT, async || sandbox.process.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0), "{}", sandbox.err());
}

/// The commands in the instructions, without their descriptions.
fn commands(instructions: &str) -> impl Iterator<Item = &str> {
    instructions.lines().filter_map(|it| it.strip_prefix("  ")).map(|it| it.split("  #").next().unwrap_or(it).trim())
}

/// Whether a process exists and is not a zombie.
fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

/// State and parent process ID.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may itself contain parentheses and spaces.
    let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
