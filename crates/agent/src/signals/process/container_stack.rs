//! Recognises the processes of the container stack: the kubelet, the container runtime, and the programs that they start.
//!
//! Their command lines contain names that a pod's author chooses: `mount … /pods/<uid>/volume-subpaths/<volume>/…`, `conmon -n
//! <container>`. They are not in the pod's cgroup, so they are recognised in two ways:
//!
//! - by the cgroup of a systemd unit of the container stack, which also holds programs whose parent has exited;
//! - by an ancestor that is one of its daemons, for hosts without systemd, and for `systemd-run --scope`, with which the
//!   kubelet runs `mount` in a cgroup of its own.
//!
//! A name alone proves nothing: a unit counts only outside of `user.slice`, where users have units of their own, and a daemon
//! only if it runs as root. The agent cannot read `/proc/<pid>/exe` of other processes, which takes `CAP_SYS_PTRACE`.

use super::cgroup::{Entry, unit_entry};
use super::matcher::ProcessInfo;

/// systemd units of the kubelet, of container runtimes, and of distributions that bundle them.
const UNITS: &[&str] = &[
    "kubelet.service",
    "kube-proxy.service",
    "containerd.service",
    "crio.service",
    "docker.service",
    "cri-docker.service",
    "k0sworker.service",
    "k0scontroller.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-agent.service",
    "rke2-server.service",
    "snap.microk8s.daemon-containerd.service",
    "snap.microk8s.daemon-kubelite.service",
    "snap.kubelet-eks.daemon.service",
    "snap.k8s.containerd.service",
    "snap.k8s.kubelet.service",
];

/// The daemons that start programs for pods, by the name that the kernel shows.
const DAEMONS: &[&[u8]] = &[
    b"kubelet",
    b"kube-proxy",
    b"containerd",
    b"crio",
    b"dockerd",
    b"cri-dockerd",
    b"k3s",
    b"k3s-agent",
    b"k3s-server",
    b"kubelite",
];

/// The name of `containerd-shim-runc-v2`, truncated by the kernel. It is the parent of `runc`, but also of the owner's own
/// containers, which have another cgroup.
const SHIM: &[u8] = b"containerd-shim";

/// Whether the process with this cgroup is part of the container stack.
pub(super) fn contains<P: ProcessInfo>(process: &P, cgroup: &str) -> bool {
    unit_entry(cgroup).is_some_and(|entry| is_unit_of_stack(&entry)) || has_daemon(process, cgroup)
}

fn is_unit_of_stack(entry: &Entry<'_>) -> bool {
    let is_unit = |name: &str| UNITS.contains(&name) || is_conmon_of_crio(name);
    let mut system_units = entry.components().take_while(|name| *name != "user.slice");
    system_units.any(is_unit)
}

/// CRI-O runs conmon in `crio-conmon-<id>.scope`. That of Podman, which is the owner's, has another name.
fn is_conmon_of_crio(name: &str) -> bool {
    let id = name.strip_prefix("crio-conmon-").and_then(|rest| rest.strip_suffix(".scope"));
    id.is_some_and(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether the process or one of its ancestors is a daemon of the container stack.
fn has_daemon<P: ProcessInfo>(process: &P, cgroup: &str) -> bool {
    is_daemon(process, cgroup) || process.ancestors().any(|ancestor| is_daemon(&ancestor, cgroup))
}

fn is_daemon(process: &impl ProcessInfo, cgroup_of_descendant: &str) -> bool {
    let Some(comm) = process.comm() else { return false };
    let has_name = DAEMONS.contains(&comm.as_slice())
        || (comm == SHIM && process.cgroup().is_some_and(|cgroup| cgroup == cgroup_of_descendant));
    has_name && process.is_root()
}

#[cfg(test)]
#[path = "container_stack_tests.rs"]
mod tests;
