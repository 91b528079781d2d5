//! A real Node: this machine, by a kubelet and a containerd of its own.
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
//! It is for root, on a machine that has containerd, runc and the CNI plugins; on Debian and Ubuntu they are installed when
//! they are first needed. The containerd that a machine may run of its own is left alone: sockets, images, control groups,
//! mounts and logs are the node's, and go with it, or with this process, however that ends. What does not go is what every
//! kubelet does to the kernel's settings when it starts (`vm.overcommit_memory=1`, `kernel.panic=10` and the like).
//!
//! There is no network but the host's, and no kube-proxy: a pod finds the API server where
//! `KUBERNETES_SERVICE_HOST=127.0.0.1` and [`RealNode::api_server_port`] say.

mod containerd;
mod image;
mod kubelet;
mod packages;
mod place;

use std::fs;
use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use kube::Api;

pub use self::image::{Image, sleeper, static_program};
pub use self::packages::Unavailable;

use self::packages::Programs;
use self::place::Place;
use crate::control_plane::{ControlPlane, StartError};
use crate::process::Process;
use crate::readiness::await_start;

/// The image that holds a pod's namespaces.
const PAUSE: &str = "localhost/5spot-testbed/pause:1";

/// A running node. Dropping it ends its pods and removes all that was on this machine for it; the Node object stays, as it
/// does when a machine is switched off.
#[derive(Debug)]
pub struct RealNode {
    // In the order of the fields things are dropped: who starts pods, who runs them, and what they leave.
    kubelet: Process,
    _containerd: Process,
    place: Place,
    programs: Programs,
    api_server: String,
}

impl RealNode {
    /// Whether there can be one here. Where not, it says so, and with `CI=true` it panics: a test that was skipped in CI
    /// would show nothing.
    pub fn is_possible() -> bool {
        match Self::prepare() {
            Ok(()) => true,
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none_or(|it| it != "true"), "{reason}");
                packages::tell(&format!("not tested: {reason}"));
                false
            }
        }
    }

    /// Installs what a node needs, where that can be done and was not, saying so first.
    pub fn prepare() -> Result<(), Unavailable> {
        packages::ensure().map(drop)
    }

    /// Starts one and returns when its Node is Ready. The control plane must let kubelets in
    /// ([`crate::ControlPlaneOptions::for_real_nodes`]).
    pub async fn start(plane: &ControlPlane, name: &str, provider_id: &str) -> Result<Self, StartError> {
        if !plane.takes_real_nodes() {
            return Err(StartError::NoRealNodes);
        }
        let programs = blocking(packages::ensure).await?;
        let pause = blocking(|| Image::sleeper(PAUSE, "pause")).await?;
        let place = Place::create(plane.run_dir(), name)?;
        let containerd = containerd::start(&place, &programs, &plane.logs()).await?;
        containerd::import(&place, &programs, &pause).await?;
        let mut kubelet = kubelet::start(plane, &place, (name, provider_id), &containerd)?;
        let nodes: Api<Node> = Api::all(plane.client());
        await_start(&mut kubelet, async || readiness(&nodes, name).await).await?;
        let api_server = plane.admin().server().to_owned();
        Ok(Self { kubelet, _containerd: containerd, place, programs, api_server })
    }

    /// Gives it an image, as if it had been pulled.
    pub async fn import(&self, image: &Image) -> Result<(), StartError> {
        containerd::import(&self.place, &self.programs, image).await
    }

    /// What the containers of a pod have printed so far, line by line; of all pods that had this name.
    pub fn logs_of(&self, namespace: &str, pod: &str) -> String {
        let prefix = format!("{namespace}_{pod}_");
        let mut text = String::new();
        for file in files_below(self.place.logs(), &prefix) {
            let file = fs::read_to_string(file).unwrap_or_default();
            // Each line has a time, the stream and a mark before it.
            for line in file.lines().filter_map(|line| line.splitn(4, ' ').nth(3)) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// The port on `127.0.0.1` at which a pod finds the API server.
    pub fn api_server_port(&self) -> &str {
        self.api_server.rsplit(':').next().unwrap_or_default()
    }

    /// The kubelet's process: killing or stopping it makes a Node that goes silent while its pods run on.
    pub fn kubelet(&self) -> &Process {
        &self.kubelet
    }

    /// Switches the machine off: ends its pods, and removes all that was there for it.
    pub async fn stop(self) {
        blocking(move || drop(self)).await;
    }
}

async fn readiness(nodes: &Api<Node>, name: &str) -> Result<(), String> {
    let node = nodes.get(name).await.map_err(|error| error.to_string())?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    match conditions.into_iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(format!("{}: {}", ready.reason.unwrap_or_default(), ready.message.unwrap_or_default())),
        None => Err("it has said nothing of its readiness".to_owned()),
    }
}

/// `<directory>/<prefix>…/<container>/<n>.log`, in order.
fn files_below(directory: &std::path::Path, prefix: &str) -> Vec<std::path::PathBuf> {
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

/// Runs a program to its end and gives what it printed.
fn run_here(doing: &str, command: &mut Command) -> Result<String, StartError> {
    let program = std::path::PathBuf::from(command.get_program());
    let output = command.output().map_err(StartError::io(&program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (doing, status) = (doing.to_owned(), output.status);
    Err(StartError::Program { doing, status, output: String::from_utf8_lossy(&output.stderr).into_owned() })
}

async fn run(doing: &str, mut command: Command) -> Result<(), StartError> {
    let doing = doing.to_owned();
    blocking(move || run_here(&doing, &mut command).map(drop)).await
}
