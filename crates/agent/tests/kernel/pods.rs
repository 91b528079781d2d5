//! Real groups of processes that look like the kubelet's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::agent::{Group, Running, Stage, Watch, hierarchies};

/// Starts the program in this group. Its name is no argument of the shell that moves, which is the host's at first.
fn start_in(group: &Group, program: &Path) -> Running {
    let mut shell = group.enter();
    shell.args(["/bin/sh", "-c", "exec \"$PROGRAM\" 600"]).env("PROGRAM", program);
    Running(shell.spawn().unwrap())
}

#[test]
fn a_program_of_a_pod_is_not_found_in_any_layout() {
    let (unified, controllers) = hierarchies();
    let own = format!("fivespot-layouts-{}", std::process::id());
    let uid = "0a1b2c3d-1234-5678-9abc-def012345678";
    let systemd =
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
    let layouts = [
        format!("{own}/{systemd}/cri-containerd-4f5e.scope"),
        format!("{own}/kubepods/besteffort/pod{uid}/4f5e"),
        format!("{own}/pod{uid}/4f5e"),
    ];
    // Any one hierarchy of version 1 stands for all of them; a machine with version 2 alone has none.
    let places: Vec<&PathBuf> =
        std::iter::once(&unified).chain(controllers.iter().find(|it| it.ends_with("pids"))).collect();
    for detector in ["netlink", "poll"] {
        let stage =
            Stage::new("match_commands = ['idea-pod', 'idea-host']\nmatch_argv_substrings = ['/idea-pod 600']\n");
        let program = stage.program("idea-pod");
        let watch = stage.watch(detector);
        for (hierarchy, layout) in places.iter().flat_map(|it| layouts.iter().map(move |layout| (it, layout))) {
            let group = Group::new(hierarchy, layout);
            let pod = start_in(&group, &program);
            wait_until_it_is(&pod, "idea-pod");
            // Had the pod's been a match, it would stand before the host's.
            let host = stage.start("idea-host");
            watch.expect(host.0.id(), "idea-host", "comm");
        }
        assert_eq!(watch.stop(), [""; 0]);
    }
}

/// The agent in a container of its own, whose runtime has given it a private view of the groups: no name tells it that
/// its neighbour is of the same pod.
#[test]
fn from_a_private_cgroup_namespace_a_neighbour_is_not_found_and_the_host_is() {
    let (unified, _) = hierarchies();
    let own = format!("fivespot-private-{}", std::process::id());
    for detector in ["netlink", "poll"] {
        let stage = Stage::new("match_commands = ['idea-near', 'idea-far']\n");
        let container = Group::new(&unified, &format!("{own}/a/agent"));
        let neighbour = Group::new(&unified, &format!("{own}/a/sidecar"));
        let agent = stage.agent(&["--dry-run", "--detector", detector]);
        let mut command: Command = container.enter();
        command.args(["unshare", "-C"]).arg(agent.get_program()).args(agent.get_args());
        let watch = Watch::start(command);
        let near = start_in(&neighbour, &stage.program("idea-near"));
        wait_until_it_is(&near, "idea-near");
        let far = stage.start("idea-far");
        watch.expect(far.0.id(), "idea-far", "comm");
        assert_eq!(watch.stop(), [""; 0]);
    }
}

fn wait_until_it_is(running: &Running, comm: &str) {
    let file = format!("/proc/{}/comm", running.0.id());
    while std::fs::read_to_string(&file).unwrap().trim_end() != comm {
        std::thread::yield_now();
    }
}
