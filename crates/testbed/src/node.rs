//! A real Node: this machine, with its own kubelet and containerd.
//!
//! ```no_run
//! # async fn example() -> Result<(), fivespot_testbed::StartError> {
//! use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode, node};
//!
//! if !RealNode::is_possible() {
//!     return Ok(());
//! }
//! let plane = ControlPlane::start(ControlPlaneOptions::named("example").for_real_nodes()).await?;
//! let node = RealNode::start(&plane, "desk-01", "remote-machine://team/desk-01").await?;
//! node.import(&node::Image::sleeper("localhost/idea:test", "idea")?).await?;
//! // run a pod with that image, `imagePullPolicy: Never` and `hostNetwork: true`, then:
//! println!("{}", node.logs_of("team", "my-pod"));
//! node.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Needs root, containerd, runc and the CNI plugins; on Debian and Ubuntu the first use installs them. A containerd that
//! already runs on the machine is not used: the node has its own sockets, images, cgroups, mounts and logs. All but the
//! logs are removed with the node, and when this process dies. What remains are the kernel settings that every kubelet
//! changes when it starts (`vm.overcommit_memory=1`, `kernel.panic=10` and others).
//!
//! Pods must use the host network, and there is no kube-proxy: set `KUBERNETES_SERVICE_HOST=127.0.0.1` and
//! `KUBERNETES_SERVICE_PORT` to [`RealNode::api_server_port`] in their manifest.

mod containerd;
mod dirs;
mod image;
mod kubelet;
pub(crate) mod packages;

use std::fs;
use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use kube::Api;

pub use self::image::{Image, sleeper, static_program};
pub use self::packages::Unavailable;

use self::dirs::NodeDirs;
use self::packages::Programs;
use crate::control_plane::{ControlPlane, StartError};
use crate::process::Process;
use crate::readiness::await_start;

/// The pod sandbox image.
const PAUSE: &str = "localhost/5spot-testbed/pause:1";

/// A running node. Dropping it kills its pods and removes its files; the Node object remains, as after a machine is
/// switched off.
#[derive(Debug)]
pub struct RealNode {
    // Fields are dropped in this order: the kubelet, which starts pods, then containerd, then the cleanup.
    kubelet: Process,
    _containerd: Process,
    dirs: NodeDirs,
    programs: Programs,
    api_server: String,
}

impl RealNode {
    /// Whether a real node can run here. If not, prints why; with `CI=true` it panics instead, because CI must not skip
    /// tests.
    pub fn is_possible() -> bool {
        packages::is_possible(Self::prepare())
    }

    /// Installs the required packages if they are missing and the distribution is supported. Prints that it does so.
    pub fn prepare() -> Result<(), Unavailable> {
        packages::ensure().map(drop)
    }

    /// Starts a node and waits until it is Ready. The control plane must have been started with
    /// [`crate::ControlPlaneOptions::for_real_nodes`].
    pub async fn start(plane: &ControlPlane, name: &str, provider_id: &str) -> Result<Self, StartError> {
        if !plane.accepts_real_nodes() {
            return Err(StartError::NoRealNodes);
        }
        let programs = blocking(packages::ensure).await?;
        let pause = blocking(|| Image::sleeper(PAUSE, "pause")).await?;
        let dirs = NodeDirs::create(plane.run_dir(), name)?;
        let containerd = containerd::start(&dirs, &programs, &plane.logs()).await?;
        containerd::import(&dirs, &programs, &pause).await?;
        let mut kubelet = kubelet::start(plane, &dirs, (name, provider_id), &containerd)?;
        let nodes: Api<Node> = Api::all(plane.client());
        await_start(&mut kubelet, async || check_ready(&nodes, name).await).await?;
        let api_server = plane.admin().server().to_owned();
        Ok(Self { kubelet, _containerd: containerd, dirs, programs, api_server })
    }

    /// Makes an image available to pods, as if it had been pulled.
    pub async fn import(&self, image: &Image) -> Result<(), StartError> {
        containerd::import(&self.dirs, &self.programs, image).await
    }

    /// The logs of all containers of a pod, and of earlier pods with the same name.
    pub fn logs_of(&self, namespace: &str, pod: &str) -> String {
        let prefix = format!("{namespace}_{pod}_");
        let mut text = String::new();
        for file in log_files(self.dirs.logs(), &prefix) {
            let file = fs::read_to_string(file).unwrap_or_default();
            // Each line starts with a time, the stream and a tag.
            for line in file.lines().filter_map(|line| line.splitn(4, ' ').nth(3)) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// The port of the API server on `127.0.0.1`.
    pub fn api_server_port(&self) -> &str {
        self.api_server.rsplit(':').next().unwrap_or_default()
    }

    /// Killing or stopping this process ends the Node's heartbeats while its pods keep running.
    pub fn kubelet(&self) -> &Process {
        &self.kubelet
    }

    /// Simulates switching the machine off: kills its pods and removes its files.
    pub async fn stop(self) {
        blocking(move || drop(self)).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum NotReady {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{reason}: {message}")]
    Condition { reason: String, message: String },
    #[error("the Node has no Ready condition yet")]
    NoCondition,
}

async fn check_ready(nodes: &Api<Node>, name: &str) -> Result<(), NotReady> {
    let conditions = nodes.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(NotReady::Condition {
            reason: ready.reason.unwrap_or_default(),
            message: ready.message.unwrap_or_default(),
        }),
        None => Err(NotReady::NoCondition),
    }
}

/// `<directory>/<prefix>…/<container>/<n>.log`, in order.
fn log_files(directory: &std::path::Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let list = |directory: &std::path::Path| {
        let mut paths: Vec<_> =
            fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    list(directory)
        .into_iter()
        .filter(|pod| pod.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .flat_map(|pod| list(&pod))
        .flat_map(|container| list(&container))
        .collect()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("setting up a node does not panic")
}

/// Runs a program and returns its standard output. `action` completes "cannot …".
fn run_blocking(action: &str, command: &mut Command) -> Result<String, StartError> {
    let program = std::path::PathBuf::from(command.get_program());
    let output = command.output().map_err(StartError::io(&program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(StartError::Program { action: action.to_owned(), status: output.status, stderr })
}

async fn run(action: &str, mut command: Command) -> Result<(), StartError> {
    let action = action.to_owned();
    blocking(move || run_blocking(&action, &mut command).map(drop)).await
}
