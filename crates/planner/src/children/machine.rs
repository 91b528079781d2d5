//! Spec of the Machine, in each supported version of Cluster API.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::ChildNames;
use fivespot_validation::validate::{ProviderObject, ValidSpec};

/// How long Cluster API may try to delete the Node once the infrastructure is deleted.
const NODE_DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// Supported versions of `cluster.x-k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineVersion {
    /// References have an `apiGroup`, timeouts are seconds.
    V1Beta2,
    /// References have an `apiVersion`, timeouts are duration strings.
    V1Beta1,
}

impl MachineVersion {
    /// In order of preference.
    pub const ALL: [MachineVersion; 2] = [MachineVersion::V1Beta2, MachineVersion::V1Beta1];

    pub fn as_str(self) -> &'static str {
        match self {
            MachineVersion::V1Beta2 => "v1beta2",
            MachineVersion::V1Beta1 => "v1beta1",
        }
    }

    pub fn api_version(self) -> String {
        format!("cluster.x-k8s.io/{}", self.as_str())
    }
}

pub(super) fn spec(spec: &ValidSpec, names: &ChildNames, version: MachineVersion) -> Value {
    let bootstrap = reference(&spec.bootstrap, &names.bootstrap, version);
    let mut machine = json!({
        "clusterName": spec.cluster_name,
        "bootstrap": { "configRef": bootstrap },
        "infrastructureRef": reference(&spec.infrastructure, &names.infrastructure, version),
    });
    match version {
        MachineVersion::V1Beta2 => {
            machine["deletion"] = json!({
                "nodeDrainTimeoutSeconds": spec.node_drain_timeout.as_secs(),
                "nodeVolumeDetachTimeoutSeconds": spec.graceful_shutdown_timeout.as_secs(),
                "nodeDeletionTimeoutSeconds": NODE_DELETION_TIMEOUT.as_secs(),
            });
        }
        MachineVersion::V1Beta1 => {
            let seconds = |duration: SignedDuration| format!("{}s", duration.as_secs());
            machine["nodeDrainTimeout"] = seconds(spec.node_drain_timeout).into();
            machine["nodeVolumeDetachTimeout"] = seconds(spec.graceful_shutdown_timeout).into();
            machine["nodeDeletionTimeout"] = seconds(NODE_DELETION_TIMEOUT).into();
        }
    }
    for (field, value) in
        [("version", &spec.machine_template.version), ("failureDomain", &spec.machine_template.failure_domain)]
    {
        if let Some(value) = value {
            machine[field] = value.as_str().into();
        }
    }
    machine
}

fn reference(object: &ProviderObject, name: &str, version: MachineVersion) -> Value {
    match version {
        MachineVersion::V1Beta2 => json!({ "apiGroup": object.group, "kind": object.kind, "name": name }),
        MachineVersion::V1Beta1 => json!({
            "apiVersion": format!("{}/{}", object.group, object.version),
            "kind": object.kind,
            "name": name,
        }),
    }
}
