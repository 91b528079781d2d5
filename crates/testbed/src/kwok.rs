//! KWOK: simulates Nodes with leases and the Pods on them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

use crate::control_plane::{ControlPlane, KWOK, StartError};
use crate::manifest;
use crate::ports::Port;
use crate::process::Process;
use crate::readiness::{ATTEMPTS, await_success, plain_client};

/// Annotation key and value of the Nodes that KWOK simulates.
pub const FAKE_NODE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// A running KWOK for one control plane. It acts as the user `kwok`.
#[derive(Debug)]
pub struct Kwok {
    process: Process,
    _port: Port,
}

impl Kwok {
    /// Starts KWOK for the Nodes with the annotation [`FAKE_NODE`]. It ignores all other Nodes.
    pub async fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        let client = plane.client();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "testbed:kwok" },
            "rules": [
                { "apiGroups": [""], "resources": ["nodes", "pods"],
                  "verbs": ["get", "list", "watch", "update", "patch", "delete"] },
                { "apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["update", "patch"] },
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                  "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
                { "apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"] },
            ],
        });
        manifest::apply::<ClusterRole>(&client, &role).await?;
        manifest::bind_user(&client, KWOK, "testbed:kwok").await?;

        let (annotation, value) = FAKE_NODE;
        let mut arguments = vec![
            format!("--kubeconfig={}", plane.kubeconfig_for(KWOK)?.display()),
            "--manage-all-nodes=false".to_owned(),
            format!("--manage-nodes-with-annotation-selector={annotation}={value}"),
            format!("--node-lease-duration-seconds={}", if plane.has_rare_heartbeats() { 3600 } else { 40 }),
        ];
        arguments.extend(stages(plane)?.iter().map(|stage| format!("--config={}", stage.display())));
        let mut attempt = 1;
        loop {
            match serve(&arguments, plane).await {
                Err(error) if error.is_port_taken() && attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    /// SIGSTOP to this process stops the heartbeats of its Nodes.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// One attempt with a newly claimed port for the health endpoint.
async fn serve(arguments: &[String], plane: &ControlPlane) -> Result<Kwok, StartError> {
    let cache = plane.artifacts().cache();
    let port = Port::claim(cache).map_err(StartError::io(cache))?;
    let mut command = Command::new(plane.artifacts().kwok());
    command.args(arguments).arg(format!("--server-address=127.0.0.1:{}", port.number()));
    let mut process = Process::spawn("kwok", &mut command, &plane.logs())?;
    await_success(&mut process, &plain_client(port.number()), "/healthz").await?;
    Ok(Kwok { process, _port: port })
}

fn stages(plane: &ControlPlane) -> Result<Vec<PathBuf>, StartError> {
    let directory = plane.artifacts().kwok_stages();
    let entries = fs::read_dir(&directory).map_err(StartError::io(&directory))?;
    let mut stages = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(StartError::io(&directory))?;
    stages.sort();
    Ok(stages)
}
