//! Decides from `/proc/<pid>/cgroup` whether a process belongs to a pod.
//!
//! The kubelet places every pod below `kubepods`, in a cgroup named after the pod's uid. The layout depends on the cgroup
//! driver and on the cgroup version:
//!
//! - `0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`
//! - `4:memory:/kubepods/burstable/pod<uid>/<id>`
//!
//! Inside a private cgroup namespace, paths are relative to the reader's own cgroup: each level up is `/..`, and the
//! levels shared with the reader have no name. A container of the reader's own pod is `/../cri-….scope`. Process 1 is
//! never in a pod, so its path goes up to the root; a path with fewer leading `..` stays inside the reader's pod.

/// The cgroup namespace of the agent: how many levels process 1 is above it. 0 in the host's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupNamespace {
    levels_to_root: usize,
}

impl CgroupNamespace {
    /// Reads the namespace from the content of `/proc/1/cgroup`.
    pub(crate) fn from_init_cgroup(cgroup: &str) -> Self {
        let levels = entries(cgroup).filter(|entry| entry.is_v2).map(|entry| entry.levels_up());
        CgroupNamespace { levels_to_root: levels.max().unwrap_or_default() }
    }

    /// Whether the content of `/proc/<pid>/cgroup` is that of a pod's process.
    pub(crate) fn is_pod(self, cgroup: &str) -> bool {
        entries(cgroup).any(|entry| {
            entry.components().any(is_pod_component) || (entry.is_v2 && entry.levels_up() < self.levels_to_root)
        })
    }
}

/// One line of the file.
pub(super) struct Entry<'a> {
    /// Only the v2 hierarchy is sure to be unshared at the container's own cgroup.
    is_v2: bool,
    /// The v1 hierarchy of systemd, which has no controllers.
    is_systemd: bool,
    path: &'a str,
}

impl<'a> Entry<'a> {
    pub(super) fn components(&self) -> impl Iterator<Item = &'a str> {
        self.path.split('/').filter(|component| !component.is_empty())
    }

    fn levels_up(&self) -> usize {
        self.components().take_while(|component| *component == "..").count()
    }
}

/// Lines are `<hierarchy>:<controllers>:<path>`; v2 is hierarchy 0 without controllers. The path may contain colons, but no
/// newline: the kernel rejects such names.
pub(super) fn entries(cgroup: &str) -> impl Iterator<Item = Entry<'_>> {
    cgroup.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let is_v2 = hierarchy == "0" && controllers.is_empty();
        Some(Entry { is_v2, is_systemd: controllers == "name=systemd", path })
    })
}

/// The line of the hierarchy in which systemd places its units: v2, unless v1 is in use. Where both are, old container runtimes
/// leave a container in the v2 cgroup of the daemon that started it.
pub(super) fn unit_entry(cgroup: &str) -> Option<Entry<'_>> {
    let is_used = |entry: &Entry<'_>| entry.components().any(|component| component != "..");
    let systemd = entries(cgroup).find(|entry| entry.is_systemd && is_used(entry));
    systemd.or_else(|| entries(cgroup).find(|entry| entry.is_v2))
}

/// The names that the kubelet uses, and no similar ones: an owner may have a slice or service of any name.
fn is_pod_component(component: &str) -> bool {
    // Some container runtimes use the systemd form `<slice>:<prefix>:<name>` as a name.
    let name = component.split(':').next().unwrap_or_default();
    match name.strip_suffix(".slice") {
        // With a `cgroupRoot`, the kubelet puts its name before `kubepods`.
        Some(slice) => {
            slice == "kubepods"
                || slice.starts_with("kubepods-")
                || slice.rsplit('-').next().and_then(|last| last.strip_prefix("pod")).is_some_and(is_pod_uid)
        }
        None => name == "kubepods" || name.strip_prefix("pod").is_some_and(is_pod_uid),
    }
}

/// A pod uid is a UUID, with `_` for `-` where systemd named the cgroup; that of a static pod has no separators.
fn is_pod_uid(text: &str) -> bool {
    let groups = || text.split(['-', '_']);
    let lengths = || groups().map(str::len);
    let is_hex = groups().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex && (lengths().eq([8, 4, 4, 4, 12]) || lengths().eq([32]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOST: CgroupNamespace = CgroupNamespace { levels_to_root: 0 };

    #[test]
    fn pod_cgroup_is_recognised_in_every_layout() {
        for cgroup in [
            // containerd, systemd driver, v2
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/cri-containerd-4f5e.scope\n",
            // CRI-O, guaranteed pod, v2
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/crio-4f5e.scope/container\n",
            // cgroupfs driver, v1
            "12:pids:/kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n4:cpu,cpuacct:/\n0::/\n",
            // static pod, whose uid is a hash
            "0::/podfeeddeadbeef0123456789abcdef0123/4f5e\n",
            // container runtime that interprets the systemd form as a path
            "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod0a1b2c3d_1234_5678_9abc_def012345678.slice:cri-containerd:4f5e\n",
            // cgroupRoot: /desk, with both drivers
            "0::/desk.slice/desk-kubepods.slice/desk-kubepods-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/cri-containerd-4f5e.scope\n",
            "0::/desk/kubepods/burstable/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n",
            // removed cgroup
            "0::/kubepods (deleted)\n",
            "0::/kubepods/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e (deleted)\n",
            // another pod, read from inside a private namespace
            "0::/../../kubepods-besteffort-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/cri-containerd-4f5e.scope\n",
        ] {
            assert!(HOST.is_pod(cgroup), "{cgroup}");
        }
    }

    #[test]
    fn host_cgroup_is_not_a_pod() {
        for cgroup in [
            "0::/\n",
            "0::/init.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-idea-4711.scope\n",
            "0::/system.slice/kubelet.service\n",
            "9:name=systemd:/\n8:pids:/user.slice\n0::/user.slice\n",
            // containers of the owner
            "0::/machine.slice/libpod-5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b.scope\n",
            "0::/user.slice/user-libpod_pod_5b0c0ffee5b0c0ffee5b0c0ffee5b0c0.slice\n",
            "0::/system.slice/docker-4f5e.scope\n",
            "0::/user.slice/podcast.scope\n",
            "0::/user.slice/pod0a1b2c3d-12345678-9abc-def0-12345678.scope\n",
            // names that only resemble those of the kubelet
            "0::/user.slice/user-notkubepods1\n",
            "0::/my-kubepods.slice/x.scope\n",
            "0::/kubepods.slices/x\n",
            "0::/kubepods.service\n",
            "0::/notkubepods\n",
            "0::/kubepods1\n",
            "0::/podcast\n",
            "0::/system.slice/pod-manager.service\n",
            "0::/user.slice/pod00000000000000000000000000000000.service\n",
            "0::/user.slice/user-pod0a1b2c3d.slice\n",
            "0::/user.slice/xpod0a1b2c3d-1234-5678-9abc-def012345678\n",
            "0::/user.slice/pod-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_\n",
        ] {
            assert!(!HOST.is_pod(cgroup), "{cgroup}");
        }
    }

    #[test]
    fn in_private_namespace_shorter_path_than_init_is_a_pod() {
        let namespace = CgroupNamespace::from_init_cgroup("0::/../../../../init.scope\n");
        assert_eq!(namespace, CgroupNamespace { levels_to_root: 4 });
        for (cgroup, is_pod) in [
            ("0::/\n", true),
            ("0::/child\n", true),
            ("0::/../cri-containerd-4f5e.scope\n", true),
            ("0::/../../../anything\n", true),
            ("0::/../../../../user.slice/user-1000.slice\n", false),
            ("0::/../../../..\n", false),
            // v1 hierarchies are ignored: they may be unshared at another level.
            ("4:memory:/\n0::/../../../../user.slice\n", false),
        ] {
            assert_eq!(namespace.is_pod(cgroup), is_pod, "{cgroup}");
        }
    }

    #[test]
    fn host_namespace_has_no_levels_to_root() {
        for cgroup in ["0::/init.scope\n", "0::/\n", "4:memory:/../..\n0::/\n", "1:cpu:/\n", ""] {
            assert_eq!(CgroupNamespace::from_init_cgroup(cgroup), HOST, "{cgroup}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(cgroup in "(?s).{0,200}", init in "(?s).{0,80}") {
            CgroupNamespace::from_init_cgroup(&init).is_pod(&cgroup);
        }

        #[test]
        fn pod_cgroup_is_recognised_at_any_depth(
            above in "(/[a-z.@]{1,12}){0,4}", below in "(/[a-z0-9.-]{1,12}){0,4}", uid in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        ) {
            let cgroups = [
                format!("0::{above}/pod{uid}{below}\n"),
                format!("3:cpu,cpuacct:{above}/pod{uid}{below}\n0::/\n"),
                format!("0::/\n1:name=systemd:{above}/x-pod{}.slice{below}\n", uid.replace('-', "_")),
            ];
            for cgroup in cgroups {
                prop_assert!(HOST.is_pod(&cgroup), "{cgroup}");
            }
        }
    }
}
