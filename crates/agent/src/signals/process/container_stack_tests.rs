use super::*;
use crate::signals::process::matcher::MAX_ANCESTORS;

/// A process as `/proc` would show it.
#[derive(Clone)]
struct FakeProcess {
    comm: &'static str,
    uid: u32,
    cgroup: &'static str,
    parent: Option<Box<FakeProcess>>,
}

/// A process of the host that runs as root.
fn root(comm: &'static str) -> FakeProcess {
    FakeProcess { comm, uid: 0, cgroup: "0::/\n", parent: None }
}

impl FakeProcess {
    fn child_of(self, parent: FakeProcess) -> Self {
        FakeProcess { parent: Some(Box::new(parent)), ..self }
    }
    fn with_uid(self, uid: u32) -> Self {
        FakeProcess { uid, ..self }
    }
    fn in_cgroup(self, cgroup: &'static str) -> Self {
        FakeProcess { cgroup, ..self }
    }
    fn is_excluded(&self) -> bool {
        contains(self, self.cgroup)
    }
}

impl ProcessInfo for FakeProcess {
    fn pid(&self) -> u32 {
        7
    }
    fn comm(&self) -> Option<Vec<u8>> {
        Some(self.comm.into())
    }
    fn cmdline(&self) -> Option<Vec<u8>> {
        panic!("a process can choose its command line")
    }
    fn cgroup(&self) -> Option<String> {
        Some(self.cgroup.into())
    }
    fn parent(&self) -> Option<Self> {
        self.parent.as_deref().cloned()
    }
    fn is_kernel_thread(&self) -> bool {
        false
    }
    fn is_root(&self) -> bool {
        self.uid == 0
    }
}

#[test]
fn unit_of_the_container_stack_is_recognised() {
    for cgroup in [
        "0::/system.slice/kubelet.service\n",
        "0::/system.slice/containerd.service\n",
        "0::/runtime.slice/containerd.service\n",
        "0::/system.slice/k0sworker.service\n",
        "0::/system.slice/rke2-agent.service/sub\n",
        // from inside a private cgroup namespace
        "0::/../../../system.slice/crio.service\n",
        // v1
        "9:name=systemd:/system.slice/k3s-agent.service\n8:pids:/\n0::/\n",
        // both, managed by systemd
        "9:name=systemd:/system.slice/containerd.service\n0::/system.slice/containerd.service\n",
        "9:name=systemd:/../../..\n0::/../../../system.slice/containerd.service\n",
        "0::/system.slice/crio-conmon-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.scope\n",
    ] {
        assert!(root("mount").in_cgroup(cgroup).is_excluded(), "{cgroup}");
    }
}

#[test]
fn similar_unit_is_not_part_of_the_container_stack() {
    for cgroup in [
        "0::/\n",
        "0::/system.slice/cron.service\n",
        "0::/system.slice/my-kubelet.service\n",
        "0::/system.slice/kubelet.service.d\n",
        // units of a user
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service\n",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/conmon.scope\n",
        "0::/user.slice/crio-conmon-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.scope\n",
        // Podman's
        "0::/machine.slice/libpod-conmon-00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff.scope\n",
        "0::/system.slice/crio-conmon-idea.scope\n",
        "0::/system.slice/run-r0123456789abcdef.scope\n",
        // a container of the owner's Docker on a host with v1 and v2, with runc before 1.1
        "4:memory:/docker/7eb2\n1:name=systemd:/docker/7eb2\n0::/system.slice/containerd.service\n",
    ] {
        assert!(!root("conmon").in_cgroup(cgroup).is_excluded(), "{cgroup}");
    }
}

#[test]
fn daemon_and_its_descendants_are_recognised() {
    for daemon in ["kubelet", "containerd", "crio", "k3s-agent", "kubelite"] {
        assert!(root(daemon).is_excluded());
        let scope = "0::/system.slice/run-r0123456789abcdef.scope\n";
        let mount = root("mount").in_cgroup(scope).child_of(root(daemon));
        assert!(mount.is_excluded(), "{daemon}");
        assert!(root("mount.nfs").with_uid(1000).child_of(mount).is_excluded());
    }
}

#[test]
fn lookalike_and_its_descendants_are_not_recognised() {
    for name in ["kubelet", "containerd", "crio", SHIM_NAME] {
        let lookalike = root(name).with_uid(1000);
        assert!(!lookalike.is_excluded());
        assert!(!root("idea").child_of(lookalike).is_excluded(), "{name}");
    }
    for name in ["conmon", "mount", "runc", "kubelet2", "Kubelet", "kube", ""] {
        assert!(!root(name).is_excluded(), "{name}");
    }
}

const SHIM_NAME: &str = "containerd-shim";

/// The owner's Docker uses the same shim, and its containers are not the container stack's.
#[test]
fn shim_and_runc_are_recognised_but_not_the_container_of_the_owner() {
    let shim = || root(SHIM_NAME).in_cgroup("0::/containerd\n");
    assert!(shim().is_excluded());
    assert!(root("runc").in_cgroup("0::/containerd\n").child_of(shim()).is_excluded());
    assert!(!root("idea").in_cgroup("0::/system.slice/docker-4f5e.scope\n").child_of(shim()).is_excluded());
}

#[test]
fn number_of_ancestors_is_bounded() {
    let chain = |length: usize| (0..length).fold(root("kubelet"), |parent, _| root("sh").child_of(parent));
    assert!(chain(MAX_ANCESTORS).is_excluded());
    assert!(!chain(MAX_ANCESTORS + 1).is_excluded());
}
