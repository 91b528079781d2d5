//! Programs that the container stack starts, and programs that only look as if it had started them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::env::{Cgroup, TestEnv, cgroup_hierarchies};
use crate::fixtures::ChildProcess;
use crate::pods::{start_in, wait_for_comm};
use crate::{DETECTORS, NO_LINES};

/// Uid and gid without privileges.
const UNPRIVILEGED: u32 = 65534;
/// Starts `$PROGRAM` and reports its pid; ends it when the standard input is closed. The program is passed in the
/// environment: as an argument it would match. The shell outlives the program, which would have another parent otherwise.
const DAEMON: &str = "\"$PROGRAM\" 600 & echo $!; read line; kill $!; wait";

/// A shell under the name of a daemon, which has started a program.
struct Daemon {
    process: Child,
    stdin: Option<ChildStdin>,
    /// The pid of the program.
    started: u32,
}

impl Daemon {
    fn start(env: &TestEnv, name: &str, program: &str, uid: u32) -> Self {
        std::fs::set_permissions(env.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
        let shell = env.path(name);
        if !shell.exists() {
            std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
        }
        let mut command = Command::new(shell);
        command.args(["-c", DAEMON]).env("PROGRAM", env.link_program(program)).uid(uid).gid(uid);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let started = pid.trim().parse().unwrap_or_else(|error| panic!("{pid:?}: {error}"));
        let daemon = Daemon { stdin: process.stdin.take(), process, started };
        daemon.wait_for_exec(program);
        daemon
    }

    /// The kernel sends the event before the new name is visible.
    fn wait_for_exec(&self, program: &str) {
        let file = format!("/proc/{}/comm", self.started);
        while std::fs::read_to_string(&file).unwrap().trim_end() != program {
            std::thread::yield_now();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn program_of_the_container_stack_does_not_match_by_arguments() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_argv_substrings = ['/idea-stack 600']\nmatch_commands = ['idea-owner']\n");
        let agent = env.dry_run(detector);
        for name in ["kubelet", "containerd", "crio"] {
            let _daemon = Daemon::start(&env, name, "idea-stack", 0);
            // A match of the daemon's program would precede this one.
            let owner = env.start_program("idea-owner");
            agent.expect_match(owner.pid(), "idea-owner", "comm");
        }
        assert_eq!(agent.stop(), NO_LINES);
    }
}

/// The daemons of the container stack run as root, and conmon also belongs to the owner's Podman.
#[test]
fn program_of_a_lookalike_matches_by_arguments() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_argv_substrings = ['/idea-looks 600']\n");
        let agent = env.dry_run(detector);
        for (name, uid) in [("kubelet", UNPRIVILEGED), ("containerd", UNPRIVILEGED), ("conmon", 0), ("kubelet-ui", 0)] {
            let daemon = Daemon::start(&env, name, "idea-looks", uid);
            agent.expect_match(daemon.started, "/idea-looks 600", "cmdline");
        }
        assert_eq!(agent.stop(), NO_LINES);
    }
}

#[test]
fn program_of_the_container_stack_matches_by_name() {
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-named']\n");
        let agent = env.dry_run(detector);
        let daemon = Daemon::start(&env, "kubelet", "idea-named", 0);
        agent.expect_match(daemon.started, "idea-named", "comm");
    }
}

/// With systemd, these programs have cgroups of the units that started them, whatever their parents are.
#[test]
fn program_in_a_unit_of_the_container_stack_does_not_match_by_arguments() {
    let (v2, _) = cgroup_hierarchies();
    let root = format!("fivespot-units-{}", std::process::id());
    let conmon = format!("system.slice/crio-conmon-{}.scope", "0123456789abcdef".repeat(4));
    for detector in DETECTORS {
        let env = TestEnv::new("match_argv_substrings = ['/idea-unit 600']\n");
        let program = env.link_program("idea-unit");
        let agent = env.dry_run(detector);
        for unit in ["system.slice/kubelet.service", "system.slice/containerd.service", &conmon] {
            let cgroup = Cgroup::create(&v2, &format!("{root}/{unit}"));
            let mount = start_in(&cgroup, &program);
            wait_for_comm(&mount, "idea-unit");
            // A match of the program above would precede this one.
            let user_unit = Cgroup::create(&v2, &format!("{root}/user.slice/user-1000.slice/kubelet.service"));
            let user = start_in(&user_unit, &program);
            agent.expect_match(user.pid(), "/idea-unit 600", "cmdline");
        }
        assert_eq!(agent.stop(), NO_LINES);
    }
}

/// With v1 and v2, runc before 1.1 leaves a container in the v2 cgroup of the daemon that started it.
#[test]
fn program_in_a_container_of_the_owner_matches_with_v1_and_v2() {
    let (v2, v1) = cgroup_hierarchies();
    // A host with v2 alone has none.
    let Some(systemd) = v1.iter().find(|hierarchy| hierarchy.ends_with("systemd")) else { return };
    let root = format!("fivespot-hybrid-{}", std::process::id());
    for detector in DETECTORS {
        let env = TestEnv::new("match_argv_substrings = ['/idea-hybrid 600']\n");
        let agent = env.dry_run(detector);
        let container = Cgroup::create(systemd, &format!("{root}/docker/7eb2"));
        let daemon = Cgroup::create(&v2, &format!("{root}/system.slice/containerd.service"));
        let (inner, mut shell) = (container.enter(), daemon.enter());
        shell.arg(inner.get_program()).args(inner.get_args());
        shell.args(["/bin/sh", "-c", "exec \"$PROGRAM\" 600"]).env("PROGRAM", env.link_program("idea-hybrid"));
        let idea = ChildProcess(shell.spawn().unwrap());
        agent.expect_match(idea.pid(), "/idea-hybrid 600", "cmdline");
        assert_eq!(agent.stop(), NO_LINES);
    }
}
