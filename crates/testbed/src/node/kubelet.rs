//! The kubelet, which makes this machine a Node.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::packages::search_path;
use super::place::Place;
use crate::control_plane::{ControlPlane, StartError};
use crate::process::Process;

/// Starts it beside a containerd, in the same mount namespace: containers see what the kubelet mounts for them.
pub(super) fn start(
    plane: &ControlPlane,
    place: &Place,
    (name, provider_id): (&str, &str),
    containerd: &Process,
) -> Result<Process, StartError> {
    let directory = place.directory();
    let user = format!("system:node:{name}");
    let identity = plane.authority().client(&user, "system:nodes")?;
    let write = |file: &str, text: String| {
        let path = directory.join(file);
        fs::write(&path, text).map_err(StartError::io(&path))?;
        Ok::<_, StartError>(path)
    };
    let kubeconfig = write("kubeconfig", plane.admin().kubeconfig_with(&identity))?;
    let config = write("kubelet.json", configuration(place, provider_id).to_string())?;

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
    Ok(Process::spawn(&format!("kubelet-{}", place.group()), &mut command, &plane.logs())?)
}

fn configuration(place: &Place, provider_id: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", place.socket().display()),
        "providerID": provider_id,
        "podLogsDir": place.logs(),
        "volumePluginDir": place.directory().join("volume-plugins"),
        // This machine is somebody's: nothing is reserved, evicted, limited or routed for the sake of pods.
        "cgroupRoot": format!("/{}", place.group()),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
        // Nobody asks it for anything, so nobody can.
        "enableServer": false,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
    })
}
