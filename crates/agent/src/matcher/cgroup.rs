//! Whether a process is a pod's, from its `/proc/<pid>/cgroup`.
//!
//! The kubelet puts every pod below `kubepods` and into a group of its own, named for the pod's uid, whichever driver
//! and whichever version of cgroups is in use:
//!
//! - `0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`
//! - `4:memory:/kubepods/burstable/pod<uid>/<id>`
//!
//! Seen from inside a private cgroup namespace a path begins at the reader's own group, with `/..` for each step up, and
//! the steps that it shares with the reader have no name: a container of the reader's own pod is `/../cri-….scope`.
//! Process 1 is never in a pod, so its path goes up all the way, and one that goes up less far stays within the tree
//! that the reader's pod is in.

/// How far up process 1 is, seen from here: 0 outside of a private cgroup namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ground(usize);

impl Ground {
    /// From what `/proc/1/cgroup` says.
    pub(crate) fn of_process_one(cgroup: &str) -> Self {
        Ground(paths(cgroup).filter(|it| it.unified).map(|it| it.steps_up()).max().unwrap_or_default())
    }

    /// Whether what `/proc/<pid>/cgroup` says is said of a pod's process.
    pub(crate) fn is_of_a_pod(self, cgroup: &str) -> bool {
        paths(cgroup).any(|it| it.components().any(is_a_pods_group) || (it.unified && it.steps_up() < self.0))
    }
}

/// One line of the file.
struct Path<'a> {
    /// Of the hierarchy of version 2, which alone is sure to be namespaced along with its pod.
    unified: bool,
    path: &'a str,
}

impl<'a> Path<'a> {
    fn components(&self) -> impl Iterator<Item = &'a str> {
        self.path.split('/').filter(|it| !it.is_empty())
    }

    fn steps_up(&self) -> usize {
        self.components().take_while(|it| *it == "..").count()
    }
}

/// The lines are `<hierarchy>:<controllers>:<path>`, and version 2 is hierarchy 0 without controllers. A path may hold
/// colons of its own.
fn paths(cgroup: &str) -> impl Iterator<Item = Path<'_>> {
    cgroup.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Path { unified: hierarchy == "0" && controllers.is_empty(), path })
    })
}

fn is_a_pods_group(component: &str) -> bool {
    component.contains("kubepods")
        || component.match_indices("pod").any(|(at, pod)| {
            // `libpod-…` is a container of the owner's own.
            let begins_a_word = at == 0 || component.as_bytes()[at - 1] == b'-';
            begins_a_word && is_uid(component[at + pod.len()..].trim_end_matches(".slice"))
        })
}

/// A pod's uid: a UUID, with `_` for `-` where systemd named the group, or without either for a pod from a file.
fn is_uid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    let hyphens: Vec<_> = text.bytes().enumerate().filter(|(_, it)| !it.is_ascii_hexdigit()).collect();
    let is_uuid = hyphens.iter().all(|(_, it)| matches!(it, b'-' | b'_'))
        && hyphens.iter().map(|(at, _)| *at).eq([8, 13, 18, 23]);
    digits == 32 && (hyphens.is_empty() || is_uuid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOST: Ground = Ground(0);

    #[test]
    fn groups_of_pods_are_told_by_every_layout() {
        for cgroup in [
            // containerd, systemd driver, version 2
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/cri-containerd-4f5e.scope\n",
            // CRI-O, a guaranteed pod, version 2
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/crio-4f5e.scope/container\n",
            // cgroupfs driver, version 1
            "12:pids:/kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n4:cpu,cpuacct:/\n0::/\n",
            // A pod from a file, whose uid is a hash
            "0::/podfeeddeadbeef0123456789abcdef0123/4f5e\n",
            // A container runtime that took the systemd form for a path
            "1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod0a1b2c3d_1234_5678_9abc_def012345678.slice:cri-containerd:4f5e\n",
            // Its group has been removed already
            "0::/kubepods/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e (deleted)\n",
            // Another pod, from inside a private namespace
            "0::/../../kubepods-besteffort-pod0a1b2c3d_1234_5678_9abc_def012345678.slice/cri-containerd-4f5e.scope\n",
        ] {
            assert!(HOST.is_of_a_pod(cgroup), "{cgroup}");
        }
    }

    #[test]
    fn groups_of_the_host_are_not() {
        for cgroup in [
            "0::/\n",
            "0::/init.scope\n",
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-idea-4711.scope\n",
            "0::/system.slice/kubelet.service\n",
            "9:name=systemd:/\n8:pids:/user.slice\n0::/user.slice\n",
            // The owner's own containers
            "0::/machine.slice/libpod-5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b0c0ffee5b.scope\n",
            "0::/user.slice/user-libpod_pod_5b0c0ffee5b0c0ffee5b0c0ffee5b0c0.slice\n",
            "0::/system.slice/docker-4f5e.scope\n",
            "0::/user.slice/podcast.scope\n",
            "0::/user.slice/pod0a1b2c3d-12345678-9abc-def0-12345678.scope\n",
        ] {
            assert!(!HOST.is_of_a_pod(cgroup), "{cgroup}");
        }
    }

    #[test]
    fn from_a_private_namespace_only_what_goes_up_as_far_as_process_one_is_the_hosts() {
        let ground = Ground::of_process_one("0::/../../../../init.scope\n");
        assert_eq!(ground, Ground(4));
        for (cgroup, of_a_pod) in [
            ("0::/\n", true),
            ("0::/child\n", true),
            ("0::/../cri-containerd-4f5e.scope\n", true),
            ("0::/../../../anything\n", true),
            ("0::/../../../../user.slice/user-1000.slice\n", false),
            ("0::/../../../..\n", false),
            // Version 1 hierarchies do not count: theirs need not have been unshared at the same place.
            ("4:memory:/\n0::/../../../../user.slice\n", false),
        ] {
            assert_eq!(ground.is_of_a_pod(cgroup), of_a_pod, "{cgroup}");
        }
    }

    #[test]
    fn outside_of_a_namespace_the_ground_is_level() {
        for cgroup in ["0::/init.scope\n", "0::/\n", "4:memory:/../..\n0::/\n", "1:cpu:/\n", ""] {
            assert_eq!(Ground::of_process_one(cgroup), HOST, "{cgroup}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_asked_about(cgroup in "(?s).{0,200}", one in "(?s).{0,80}") {
            Ground::of_process_one(&one).is_of_a_pod(&cgroup);
        }

        #[test]
        fn a_pods_group_is_told_wherever_it_is(
            above in "(/[a-z.@]{1,12}){0,4}", below in "(/[a-z0-9.-]{1,12}){0,4}", uid in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        ) {
            let lines = [
                format!("0::{above}/pod{uid}{below}\n"),
                format!("3:cpu,cpuacct:{above}/pod{uid}{below}\n0::/\n"),
                format!("0::/\n1:name=systemd:{above}/x-pod{}.slice{below}\n", uid.replace('-', "_")),
            ];
            for line in lines {
                prop_assert!(HOST.is_of_a_pod(&line), "{line}");
            }
        }
    }
}
