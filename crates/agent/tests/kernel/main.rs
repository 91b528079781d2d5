//! The agent on the running kernel. These tests need root, the host's network and pid namespaces, and writable cgroups; without
//! them they fail and are never skipped. They wait for the agent's output, not for time to pass.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod container_stack;
mod env;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod hidden_processes;
mod pods;
mod usermode_helpers;

use std::process::{Command, Stdio};

use env::{DryRun, TestEnv};
use fixtures::ChildProcess;

const DETECTORS: [&str; 2] = ["netlink", "poll"];
const NO_LINES: [&str; 0] = [];

#[test]
fn started_program_matches() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-start']\n");
        let agent = env.dry_run(detector);
        assert_eq!(agent.detector, detector);
        let idea = env.start_program("idea-start");
        let line = agent.expect_match(idea.pid(), "idea-start", "comm");
        assert_eq!(line["comm"], "idea-start");
        assert_eq!(agent.stop(), NO_LINES, "one line per process");
    }
}

#[test]
fn running_program_matches_on_arming() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-early']\n");
        let idea = env.start_program("idea-early");
        env.dry_run(detector).expect_match(idea.pid(), "idea-early", "comm");
    }
}

#[test]
fn truncated_name_is_distinguished_from_same_prefix() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-with-a-long-name', 'idea-last']\n");
        let agent = env.dry_run(detector);
        let _same_prefix = env.start_program("idea-with-a-long-neighbour");
        let idea = env.start_program("idea-with-a-long-name");
        let line = agent.expect_match(idea.pid(), "idea-with-a-long-name", "comm");
        assert_eq!(line["comm"], "idea-with-a-lon");
        // A match of the other program would precede this one.
        let last = env.start_program("idea-last");
        agent.expect_match(last.pid(), "idea-last", "comm");
    }
}

#[test]
fn renamed_process_matches() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-renamed']\n");
        let agent = env.dry_run(detector);
        let mut shell = Command::new("/bin/sh");
        // `read` is a builtin: the shell itself continues under the new name.
        shell.args(["-c", "n=idea; echo $n-renamed > /proc/$$/comm; read line"]).stdin(Stdio::piped());
        let shell = ChildProcess(shell.spawn().unwrap());
        agent.expect_match(shell.pid(), "idea-renamed", "comm");
    }
}

#[test]
fn argv_substring_matches() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_argv_substrings = ['-jar idea-argument.jar']\n");
        let agent = env.dry_run(detector);
        let mut java = Command::new("/bin/sh");
        java.args(["-c", "read line", "-jar", "idea-argument.jar"]).stdin(Stdio::piped());
        let java = ChildProcess(java.spawn().unwrap());
        agent.expect_match(java.pid(), "-jar idea-argument.jar", "cmdline");
    }
}

#[test]
fn concurrent_programs_each_match_once() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-many']\n");
        let agent = env.dry_run(detector);
        let programs: Vec<ChildProcess> = (0..20).map(|_| env.start_program("idea-many")).collect();
        let mut started: Vec<u64> = programs.iter().map(|program| program.pid().into()).collect();
        let mut matched: Vec<u64> = programs.iter().map(|_| agent.next_line()["pid"].as_u64().unwrap()).collect();
        started.sort_unstable();
        matched.sort_unstable();
        assert_eq!(matched, started);
        assert_eq!(agent.stop(), NO_LINES);
    }
}

#[test]
fn agent_does_not_match_itself() {
    for detector in DETECTORS {
        // A name of its own, so that the agents of other tests do not match.
        let env = TestEnv::new("match_commands = ['idea-self']\nmatch_argv_substrings = ['5spot-itself --config']\n");
        let program = env.path("5spot-itself");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_5spot-reclaim-agent"), &program).unwrap();
        let mut command = Command::new(program);
        command.args(env.command(&["--dry-run", "--detector", detector]).get_args());
        let agent = DryRun::start(command);
        let idea = env.start_program("idea-self");
        agent.expect_match(idea.pid(), "idea-self", "comm");
        assert_eq!(agent.stop(), NO_LINES);
    }
}

/// The warning is what tells an operator why the agent polls.
#[test]
fn auto_polls_in_another_network_namespace() {
    let env = TestEnv::new("match_commands = ['idea-netns']\npoll_interval_ms = 20\n");
    let unshared = |arguments: &[&str]| {
        let agent = env.command(arguments);
        let mut command = Command::new("unshare");
        command.arg("-n").arg(agent.get_program()).args(agent.get_args());
        command
    };
    let netlink = unshared(&["--dry-run", "--detector", "netlink"]).output().unwrap();
    assert_eq!(netlink.status.code(), Some(1));
    assert!(netlink.stdout.is_empty(), "it must not report that it is armed");
    let stderr = String::from_utf8(netlink.stderr).unwrap();
    assert!(
        stderr.contains("error: cannot use --detector netlink: ") && stderr.contains("hostNetwork: true"),
        "{stderr}"
    );

    let log = std::fs::File::create(env.path("log")).unwrap();
    let mut command = unshared(&["--dry-run"]);
    command.stderr(log);
    let agent = DryRun::start(command);
    assert_eq!(agent.detector, "poll");
    let log = std::fs::read_to_string(env.path("log")).unwrap();
    assert!(log.contains("polling instead") && log.contains("hostNetwork: true"), "{log}");
    let idea = env.start_program("idea-netns");
    agent.expect_match(idea.pid(), "idea-netns", "comm");
}

#[test]
fn auto_uses_netlink_in_the_host_namespaces() {
    assert_eq!(TestEnv::new("").dry_run("auto").detector, "netlink");
}

#[test]
fn oneshot_exit_code_reports_a_match() {
    let env = TestEnv::new("match_commands = ['idea-oneshot']\n");
    let without_match = env.oneshot();
    assert_eq!((without_match.status.code(), without_match.stdout.len()), (Some(0), 0));
    let idea = env.start_program("idea-oneshot");
    let with_match = env.oneshot();
    assert_eq!(with_match.status.code(), Some(10));
    let line: serde_json::Value = serde_json::from_slice(&with_match.stdout).unwrap();
    assert_eq!((&line["event"], &line["pid"]), (&"match".into(), &idea.pid().into()));
    let no_patterns = TestEnv::new("match_commands = []\n");
    assert_eq!(no_patterns.oneshot().status.code(), Some(0));
}
