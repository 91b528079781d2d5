//! The real Cluster API core manager as a process, with its CRDs, conversion and admission webhooks.

use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::certificates::Authority;
use crate::control_plane::{CLUSTER_API, ControlPlane, StartError};
use crate::manifest;
use crate::ports::Port;
use crate::process::Process;
use crate::readiness::{ATTEMPTS, await_start, await_success, plain_client};

/// The API group of Cluster and Machine.
pub const GROUP: &str = "cluster.x-k8s.io";

/// A kind of Cluster API's core group, in the storage version.
pub(crate) fn core_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta2", kind))
}

/// A running Cluster API manager. It acts as the user `cluster-api`.
#[derive(Debug)]
pub struct ClusterApi {
    manager: Process,
    _ports: [Port; 2],
}

/// The manager's webhook endpoint, and the authority that signed its certificate.
struct Webhooks {
    port: u16,
    authority: ByteString,
}

impl ClusterApi {
    /// Installs Cluster API in a control plane and waits until its webhooks respond.
    pub async fn start(plane: &ControlPlane) -> Result<Self, StartError> {
        manifest::bind_user(&plane.client(), CLUSTER_API, "cluster-admin").await?;
        let mut attempt = 1;
        loop {
            match start_once(plane).await {
                Err(error) if error.is_port_taken() && attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    pub fn process(&self) -> &Process {
        &self.manager
    }
}

async fn start_once(plane: &ControlPlane) -> Result<ClusterApi, StartError> {
    let cache = plane.artifacts().cache();
    let claim = || Port::claim(cache).map_err(StartError::io(cache));
    let ports = [claim()?, claim()?];
    let [webhook_port, health_port] = ports.each_ref().map(Port::number);

    let certificates = plane.run_dir().subdirectory("cluster-api").map_err(StartError::io(plane.run_dir().path()))?;
    let authority = Authority::new("testbed webhook authority")?;
    let serving = authority.server(&[])?;
    for (name, content) in [("tls.crt", serving.certificate), ("tls.key", serving.key)] {
        let path = certificates.join(name);
        fs::write(&path, content).map_err(StartError::io(&path))?;
    }

    let client = plane.client();
    let webhooks = Webhooks { port: webhook_port, authority: ByteString(authority.pem().into_bytes()) };
    manifest::apply_crds(&client, &build_crds(&plane.artifacts().cluster_api_crds(), &webhooks)?).await?;

    let mut command = Command::new(plane.artifacts().cluster_api());
    command
        .arg(format!("--kubeconfig={}", plane.kubeconfig_for(CLUSTER_API)?.display()))
        .arg(format!("--webhook-cert-dir={}", certificates.display()))
        .arg(format!("--webhook-port={webhook_port}"))
        .arg(format!("--health-addr=127.0.0.1:{health_port}"))
        .args(["--diagnostics-address=0", "--insecure-diagnostics=true", "--leader-elect=false"])
        // The rate limit of one reconcile per object and second would slow down every test.
        .arg("--feature-gates=ReconcilerRateLimiting=false")
        // With the default client-side throttling, benchmarks would measure the manager, not the controller.
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
        .args(["--clustercache-client-qps=200", "--clustercache-client-burst=400"]);
    let mut manager = Process::spawn("cluster-api", &mut command, &plane.logs())?;
    await_success(&mut manager, &plain_client(health_port), "/readyz").await?;
    apply_webhooks(&client, &plane.artifacts().cluster_api_webhooks(), &webhooks).await?;
    await_webhooks(&mut manager, &client).await?;
    Ok(ClusterApi { manager, _ports: ports })
}

impl Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({ "url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.authority })
    }
}

/// The published CRDs with contract labels and this manager's conversion webhook.
fn build_crds(directory: &Path, webhooks: &Webhooks) -> Result<Vec<Value>, StartError> {
    let mut crds = Vec::new();
    for entry in fs::read_dir(directory).map_err(StartError::io(directory))? {
        let path = entry.map_err(StartError::io(directory))?.path();
        for mut crd in manifest::read(&path)? {
            crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"] = json!("v1beta1");
            crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"] = json!("v1beta2");
            if crd.pointer("/spec/versions").and_then(Value::as_array).is_some_and(|versions| versions.len() > 1) {
                crd["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": webhooks.client_config("/convert"),
                } });
            }
            crds.push(crd);
        }
    }
    Ok(crds)
}

async fn apply_webhooks(client: &Client, file: &Path, webhooks: &Webhooks) -> Result<(), StartError> {
    for mut configuration in manifest::read(file)? {
        configuration["metadata"]["name"] = json!("cluster-api");
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook.pointer("/clientConfig/service/path").and_then(Value::as_str).unwrap_or_default();
            webhook["clientConfig"] = webhooks.client_config(path);
        }
        if configuration["kind"] == "MutatingWebhookConfiguration" {
            manifest::apply::<MutatingWebhookConfiguration>(client, &configuration).await?;
        } else {
            manifest::apply::<ValidatingWebhookConfiguration>(client, &configuration).await?;
        }
    }
    Ok(())
}

/// Waits until a dry-run create of a Cluster passes the mutating and the validating webhook.
async fn await_webhooks(manager: &mut Process, client: &Client) -> Result<(), StartError> {
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &core_kind("Cluster"));
    let control_plane = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "Any", "name": "any" });
    let trial = DynamicObject::new("trial", &core_kind("Cluster"))
        .data(json!({ "spec": { "controlPlaneRef": control_plane } }));
    let dry_run = PostParams { dry_run: true, field_manager: None };
    await_start(manager, async || clusters.create(&dry_run, &trial).await.map(drop)).await
}
