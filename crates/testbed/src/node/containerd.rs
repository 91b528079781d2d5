//! containerd, apart from any that this machine has of its own.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;

use super::image::Image;
use super::packages::{Programs, search_path};
use super::place::Place;
use crate::control_plane::StartError;
use crate::process::Process;
use crate::readiness::await_start;

/// Where the kubelet looks for images.
const NAMESPACE: &str = "k8s.io";
/// Needs nothing of the file system that it copies to.
const SNAPSHOTTER: &str = "native";

/// A network that satisfies the kubelet. There is no other: pods are in the host's.
const NETWORK: &str = r#"{ "cniVersion": "0.4.0", "name": "loopback", "plugins": [{ "type": "loopback" }] }"#;

/// Some paths cannot be configured. In the node's mount namespace they lead to its own directory.
const OWN_PATHS: &str = r#"
for path in /run/containerd /var/lib/kubelet /var/log/containers; do
    mkdir -p "$path" "$PLACE/own$path" && mount --bind "$PLACE/own$path" "$path" || exit
done
exec "$@"
"#;

/// Starts it in a mount namespace of its own: what is mounted for pods is gone when the last of them is.
pub(super) async fn start(place: &Place, programs: &Programs, logs: &std::path::Path) -> Result<Process, StartError> {
    let network = place.directory().join("cni");
    let write = |path: &std::path::Path, text: &str| fs::write(path, text).map_err(StartError::io(path));
    fs::create_dir_all(&network).map_err(StartError::io(&network))?;
    write(&network.join("loopback.conflist"), NETWORK)?;
    let config = place.directory().join("containerd.toml");
    write(&config, &configuration(place, programs))?;

    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--", "/bin/sh", "-c", OWN_PATHS, "sh"])
        .arg(&programs.containerd)
        .arg("--config")
        .arg(&config);
    command.env("PLACE", place.directory()).env("PATH", search_path());
    let name = format!("containerd-{}", place.group());
    let mut process = Process::spawn(&name, &mut command, logs)?;
    let socket = place.socket();
    await_start(&mut process, async || UnixStream::connect(&socket).map(drop).map_err(|error| error.to_string()))
        .await?;
    Ok(process)
}

fn configuration(place: &Place, programs: &Programs) -> String {
    let (directory, data) = (place.directory().display(), place.data().display());
    let (socket, plugins, pause) = (place.socket(), programs.plugins.display(), super::PAUSE);
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
# Who tests in a container may be root and still not be allowed to protect a process from the kernel.
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

/// Gives containerd an image, as if it had been pulled.
pub(super) async fn import(place: &Place, programs: &Programs, image: &Image) -> Result<(), StartError> {
    let archive = place.data().join("import.tar");
    image.write(&archive)?;
    let mut command = Command::new(&programs.ctr);
    command.arg("--address").arg(place.socket()).args(["--namespace", NAMESPACE]);
    command.args(["images", "import", "--snapshotter", SNAPSHOTTER]).arg(&archive);
    super::run(&format!("importing image {}", image.name()), command).await?;
    fs::remove_file(&archive).map_err(StartError::io(&archive))
}
