//! The kubelet, which registers this machine as a Node.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::dirs::NodeDirs;
use super::packages::search_path;
use crate::control_plane::{ControlPlane, StartError};
use crate::process::Process;

/// Starts the kubelet in the mount namespace of containerd, so that containers see the volumes that it mounts.
pub(super) fn start(
    plane: &ControlPlane,
    dirs: &NodeDirs,
    (name, provider_id): (&str, &str),
    containerd: &Process,
) -> Result<Process, StartError> {
    let directory = dirs.directory();
    let user = format!("system:node:{name}");
    let identity = plane.authority().client(&user, "system:nodes")?;
    let write = |file: &str, text: String| {
        let path = directory.join(file);
        fs::write(&path, text).map_err(StartError::io(&path))?;
        Ok::<_, StartError>(path)
    };
    let kubeconfig = write("kubeconfig", plane.admin().kubeconfig_with(&identity))?;
    let config = write("kubelet.json", configuration(dirs, provider_id).to_string())?;

    let mut command = Command::new("nsenter");
    command.args(["--mount", "--target", &containerd.pid().to_string(), "--"]);
    command.arg(plane.artifacts().kubernetes("kubelet")).env("PATH", search_path());
    let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
    command.args([
        flag("config", &config),
        flag("kubeconfig", &kubeconfig),
        flag("root-dir", &directory.join("kubelet")),
        flag("cert-dir", &directory.join("kubelet-certificates")),
        format!("--hostname-override={name}"),
    ]);
    Ok(Process::spawn(&format!("kubelet-{}", dirs.cgroup()), &mut command, &plane.logs())?)
}

fn configuration(dirs: &NodeDirs, provider_id: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", dirs.socket().display()),
        "providerID": provider_id,
        "podLogsDir": dirs.logs(),
        "volumePluginDir": dirs.directory().join("volume-plugins"),
        // Pods must not affect the rest of this machine: no reservations, evictions, limits or iptables rules.
        "cgroupRoot": format!("/{}", dirs.cgroup()),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
        // No test uses the kubelet API.
        "enableServer": false,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    })
}
