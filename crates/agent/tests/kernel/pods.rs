//! Programs in real cgroups that are laid out like those of the kubelet.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::env::{Cgroup, DryRun, TestEnv, cgroup_hierarchies};
use crate::fixtures::ChildProcess;
use crate::{DETECTORS, NO_LINES};

/// The program is passed in the environment: as an argument of the shell, which starts outside the cgroup, it would match.
pub(crate) fn start_in(cgroup: &Cgroup, program: &Path) -> ChildProcess {
    let mut shell = cgroup.enter();
    shell.args(["/bin/sh", "-c", "exec \"$PROGRAM\" 600"]).env("PROGRAM", program);
    ChildProcess(shell.spawn().unwrap())
}

#[test]
fn pod_process_does_not_match_in_any_layout() {
    let (v2, v1) = cgroup_hierarchies();
    let root = format!("fivespot-layouts-{}", std::process::id());
    let uid = "0a1b2c3d-1234-5678-9abc-def012345678";
    let systemd =
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
    let layouts = [
        format!("{root}/{systemd}/cri-containerd-4f5e.scope"),
        format!("{root}/kubepods/besteffort/pod{uid}/4f5e"),
        format!("{root}/pod{uid}/4f5e"),
    ];
    // One v1 hierarchy represents all; a host with v2 alone has none.
    let hierarchies: Vec<&PathBuf> =
        std::iter::once(&v2).chain(v1.iter().find(|hierarchy| hierarchy.ends_with("pids"))).collect();
    for detector in DETECTORS {
        let env =
            TestEnv::new("match_commands = ['idea-pod', 'idea-host']\nmatch_argv_substrings = ['/idea-pod 600']\n");
        let program = env.link_program("idea-pod");
        let agent = env.dry_run(detector);
        for (hierarchy, layout) in hierarchies.iter().flat_map(|it| layouts.iter().map(move |layout| (it, layout))) {
            let cgroup = Cgroup::create(hierarchy, layout);
            let pod = start_in(&cgroup, &program);
            wait_for_comm(&pod, "idea-pod");
            // A match of the pod would precede this one.
            let host = env.start_program("idea-host");
            agent.expect_match(host.pid(), "idea-host", "comm");
        }
        assert_eq!(agent.stop(), NO_LINES);
    }
}

/// In the private cgroup namespace of a container, no path component names the agent's own pod.
#[test]
fn sidecar_does_not_match_from_private_cgroup_namespace() {
    let (v2, _) = cgroup_hierarchies();
    let root = format!("fivespot-private-{}", std::process::id());
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-sidecar', 'idea-outside']\n");
        let container = Cgroup::create(&v2, &format!("{root}/a/agent"));
        let sidecar = Cgroup::create(&v2, &format!("{root}/a/sidecar"));
        let agent = env.command(&["--dry-run", "--detector", detector]);
        let mut command = container.enter();
        command.args(["unshare", "-C"]).arg(agent.get_program()).args(agent.get_args());
        let agent = DryRun::start(command);
        let sidecar = start_in(&sidecar, &env.link_program("idea-sidecar"));
        wait_for_comm(&sidecar, "idea-sidecar");
        let host = env.start_program("idea-outside");
        agent.expect_match(host.pid(), "idea-outside", "comm");
        assert_eq!(agent.stop(), NO_LINES);
    }
}

pub(crate) fn wait_for_comm(process: &ChildProcess, comm: &str) {
    let file = format!("/proc/{}/comm", process.pid());
    while std::fs::read_to_string(&file).unwrap().trim_end() != comm {
        std::thread::yield_now();
    }
}

/// The names only resemble those that the kubelet uses.
#[test]
fn program_in_cgroup_with_similar_name_matches() {
    let (v2, _) = cgroup_hierarchies();
    let root = format!("fivespot-similar-{}", std::process::id());
    for detector in DETECTORS {
        let env = TestEnv::new("match_commands = ['idea-similar']\n");
        let program = env.link_program("idea-similar");
        let agent = env.dry_run(detector);
        for name in ["user-notkubepods1", "my-kubepods.slice", "podcast", "pod-manager.service"] {
            let cgroup = Cgroup::create(&v2, &format!("{root}/{name}"));
            let idea = start_in(&cgroup, &program);
            agent.expect_match(idea.pid(), "idea-similar", "comm");
        }
        assert_eq!(agent.stop(), NO_LINES);
    }
}

/// How much the agent reads of a command line that is long enough.
const LONG: usize = 256 << 10;

/// A program with a long command line. It starts its arguments in the cgroup: outside, those of the shell would be read.
fn start_with_long_arguments(cgroup: &Cgroup) -> ChildProcess {
    const SCRIPT: &str = "exec /bin/sh -c 'read line' sh \"$LONG\" \"$LONG\" \"$LONG\"";
    let mut shell = cgroup.enter();
    shell.args(["/bin/sh", "-c", SCRIPT]).env("LONG", "x".repeat(LONG / 2 - 100)).stdin(Stdio::piped());
    let process = ChildProcess(shell.spawn().unwrap());
    let cmdline = format!("/proc/{}/cmdline", process.pid());
    while std::fs::read(&cmdline).unwrap().len() < LONG {
        std::thread::yield_now();
    }
    process
}

/// The kernel counts what the agent reads, other programs of the machine included: hence half, and many processes.
#[test]
fn long_command_line_of_a_pod_is_not_read() {
    const PROCESSES: usize = 20;
    let (v2, _) = cgroup_hierarchies();
    let root = format!("fivespot-long-{}", std::process::id());
    let env = TestEnv::new("match_commands = ['idea-after']\nmatch_argv_substrings = ['idea-argument']\n");
    let agent = env.dry_run("netlink");
    let bytes_read_for = |name: &str| {
        let cgroup = Cgroup::create(&v2, &format!("{root}/{name}"));
        let before = agent.bytes_read();
        let _processes: Vec<ChildProcess> = (0..PROCESSES).map(|_| start_with_long_arguments(&cgroup)).collect();
        // The agent handles programs in the order in which they start.
        let after = env.start_program("idea-after");
        agent.expect_match(after.pid(), "idea-after", "comm");
        agent.bytes_read() - before
    };
    let of_pod = bytes_read_for("kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e");
    assert!(of_pod < PROCESSES * LONG / 2, "{of_pod}");
    let of_host = bytes_read_for("host");
    assert!(of_host >= PROCESSES * LONG, "{of_host}");
}
