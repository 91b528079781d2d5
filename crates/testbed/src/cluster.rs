//! Creates a Cluster with infrastructure, control plane and kubeconfig, ready for Machines.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::capi::core_kind;
use crate::control_plane::{ControlPlane, StartError, WORKLOAD_ADMIN};
use crate::namespace::TestNamespace;
use crate::provider::Provider;
use crate::provider::kinds::{K0SMOTRON_CONTROL_PLANE, ProviderKind, REMOTE_CLUSTER};
use crate::wait::try_eventually;

const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// Creates the Cluster `name` and waits until Cluster API reports its infrastructure as provisioned and its control plane
/// as initialized. Its machines join `workload`.
pub(crate) async fn create(
    provider: &Provider,
    namespace: &TestNamespace,
    name: &str,
    workload: Workload<'_>,
) -> Result<(), StartError> {
    let plane = match workload {
        Workload::Management(plane) => plane,
        Workload::Separate(plane) => {
            provider.set_workload_cluster(&namespace.name, name, plane).await?;
            plane
        }
    };
    let cannot_create = |what: &str| StartError::api(format!("create {what} of Cluster {name}"));
    let access = plane.access(WORKLOAD_ADMIN).ok_or_else(|| StartError::UnknownUser { name: WORKLOAD_ADMIN.into() })?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{name}-kubeconfig"),
            "labels": { "cluster.x-k8s.io/cluster-name": name },
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": { "value": access.kubeconfig() },
    }))
    .expect("the literal above is a Secret");
    let create = PostParams::default();
    namespace.api::<Secret>().create(&create, &secret).await.map_err(cannot_create("the kubeconfig Secret"))?;

    let (host, port) = endpoint(access.server());
    let infrastructure = json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": port } } });
    create_provider_object(namespace, &REMOTE_CLUSTER, name, infrastructure)
        .await
        .map_err(cannot_create("the RemoteCluster"))?;
    create_provider_object(namespace, &K0SMOTRON_CONTROL_PLANE, name, json!({ "spec": {} }))
        .await
        .map_err(cannot_create("the K0smotronControlPlane"))?;

    let reference = |kind: &ProviderKind| json!({ "apiGroup": kind.group, "kind": kind.kind, "name": name });
    let cluster = DynamicObject::new(name, &core_kind("Cluster")).data(json!({ "spec": {
        "infrastructureRef": reference(&REMOTE_CLUSTER),
        "controlPlaneRef": reference(&K0SMOTRON_CONTROL_PLANE),
    } }));
    let clusters = namespace.dynamic_api(&core_kind("Cluster"));
    clusters.create(&create, &cluster).await.map_err(StartError::api(format!("create Cluster {name}")))?;
    await_initialized(&clusters, name).await
}

/// The workload cluster, which a Cluster's machines join.
pub(crate) enum Workload<'a> {
    /// The management cluster itself.
    Management(&'a ControlPlane),
    Separate(&'a ControlPlane),
}

async fn await_initialized(clusters: &Api<DynamicObject>, name: &str) -> Result<(), StartError> {
    let what = format!("Cluster {name} is initialized");
    try_eventually(&what, READY_TIMEOUT, async || {
        let cluster = clusters.get(name).await.map_err(|error| json!(error.to_string()))?;
        let status = &cluster.data["status"];
        let is_set = |flag: &str| status["initialization"][flag] == json!(true);
        if is_set("infrastructureProvisioned") && is_set("controlPlaneInitialized") {
            Ok(())
        } else {
            Err(status.clone())
        }
    })
    .await
    .map_err(StartError::from)
}

async fn create_provider_object(
    namespace: &TestNamespace,
    kind: &ProviderKind,
    name: &str,
    data: Value,
) -> Result<(), kube::Error> {
    let resource = kind.api_resource();
    namespace
        .dynamic_api(&resource)
        .create(&PostParams::default(), &DynamicObject::new(name, &resource).data(data))
        .await
        .map(drop)
}

fn endpoint(server: &str) -> (&str, u16) {
    let address = server.trim_start_matches("https://");
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "443"));
    (host, port.parse().unwrap_or(443))
}
