//! A containerd for one node, separate from one that may already run on this machine.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;

use super::dirs::NodeDirs;
use super::image::Image;
use super::packages::{Programs, search_path};
use crate::control_plane::StartError;
use crate::process::Process;
use crate::readiness::await_start;

/// The containerd namespace in which the kubelet finds images.
const NAMESPACE: &str = "k8s.io";
/// Works on every file system.
const SNAPSHOTTER: &str = "native";

/// The kubelet requires a CNI network, although all pods use the host network.
const NETWORK: &str = r#"{ "cniVersion": "0.4.0", "name": "loopback", "plugins": [{ "type": "loopback" }] }"#;

/// Bind-mounts paths that cannot be configured to the node's directory, inside the node's mount namespace.
const MOUNT_AND_EXEC: &str = r#"
for path in /run/containerd /var/lib/kubelet /var/log/containers; do
    mkdir -p "$path" "$NODE_DIR/own$path" && mount --bind "$NODE_DIR/own$path" "$path" || exit
done
exec "$@"
"#;

/// Starts containerd in a new mount namespace: the mounts of pods disappear with its last process.
pub(super) async fn start(dirs: &NodeDirs, programs: &Programs, logs: &std::path::Path) -> Result<Process, StartError> {
    let network = dirs.directory().join("cni");
    let write = |path: &std::path::Path, text: &str| fs::write(path, text).map_err(StartError::io(path));
    fs::create_dir_all(&network).map_err(StartError::io(&network))?;
    write(&network.join("loopback.conflist"), NETWORK)?;
    let config = dirs.directory().join("containerd.toml");
    write(&config, &configuration(dirs, programs))?;

    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--", "/bin/sh", "-c", MOUNT_AND_EXEC, "sh"])
        .arg(&programs.containerd)
        .arg("--config")
        .arg(&config);
    command.env("NODE_DIR", dirs.directory()).env("PATH", search_path());
    let name = format!("containerd-{}", dirs.cgroup());
    let mut process = Process::spawn(&name, &mut command, logs)?;
    let socket = dirs.socket();
    await_start(&mut process, async || UnixStream::connect(&socket).map(drop)).await?;
    Ok(process)
}

fn configuration(dirs: &NodeDirs, programs: &Programs) -> String {
    let (directory, data) = (dirs.directory().display(), dirs.data().display());
    let (socket, plugins, pause) = (dirs.socket(), programs.plugins.display(), super::PAUSE);
    let socket = socket.display();
    format!(
        r#"version = 2
root = "{data}"
state = "{directory}/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{data}/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Root in a container may lack the permission to lower the OOM score of a process.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{SNAPSHOTTER}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{directory}/cni"
"#
    )
}

/// Imports an image, as if it had been pulled.
pub(super) async fn import(dirs: &NodeDirs, programs: &Programs, image: &Image) -> Result<(), StartError> {
    let archive = dirs.data().join("import.tar");
    image.write(&archive)?;
    let mut command = Command::new(&programs.ctr);
    command.arg("--address").arg(dirs.socket()).args(["--namespace", NAMESPACE]);
    command.args(["images", "import", "--snapshotter", SNAPSHOTTER]).arg(&archive);
    super::run(&format!("import image {}", image.name()), command).await?;
    fs::remove_file(&archive).map_err(StartError::io(&archive))
}
