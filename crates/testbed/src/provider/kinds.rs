//! The kinds of k0smotron that the provider implements, as CustomResourceDefinitions that accept any spec.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The Cluster API contract that a kind implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Bootstrap,
    /// Infrastructure of a Machine.
    Machine,
    /// Infrastructure of a Cluster.
    Cluster,
    ControlPlane,
}

/// A kind of the provider, in version v1beta1 and with the v1beta1 contract.
#[derive(Debug)]
pub struct ProviderKind {
    pub group: &'static str,
    pub kind: &'static str,
    pub role: Role,
}

/// The API version of every kind.
pub const VERSION: &str = "v1beta1";

pub const K0S_WORKER_CONFIG: ProviderKind =
    ProviderKind { group: "bootstrap.cluster.x-k8s.io", kind: "K0sWorkerConfig", role: Role::Bootstrap };
/// [`K0S_WORKER_CONFIG`] in k0smotron's own group.
pub const K0SMOTRON_WORKER_CONFIG: ProviderKind =
    ProviderKind { group: "k0smotron.io", kind: "K0sWorkerConfig", role: Role::Bootstrap };
/// A machine that k0smotron provisions over SSH.
pub const REMOTE_MACHINE: ProviderKind =
    ProviderKind { group: "infrastructure.cluster.x-k8s.io", kind: "RemoteMachine", role: Role::Machine };
pub const REMOTE_CLUSTER: ProviderKind =
    ProviderKind { group: "infrastructure.cluster.x-k8s.io", kind: "RemoteCluster", role: Role::Cluster };
pub const K0SMOTRON_CONTROL_PLANE: ProviderKind =
    ProviderKind { group: "controlplane.cluster.x-k8s.io", kind: "K0smotronControlPlane", role: Role::ControlPlane };

pub const ALL: &[ProviderKind] =
    &[K0S_WORKER_CONFIG, K0SMOTRON_WORKER_CONFIG, REMOTE_MACHINE, REMOTE_CLUSTER, K0SMOTRON_CONTROL_PLANE];

impl ProviderKind {
    /// `<group>/<version>`.
    pub fn api_version(&self) -> String {
        format!("{}/{VERSION}", self.group)
    }

    pub fn api_resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(self.group, VERSION, self.kind), &self.plural())
    }

    fn plural(&self) -> String {
        format!("{}s", self.kind.to_lowercase())
    }

    pub(super) fn crd(&self) -> Value {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let plural = self.plural();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{}", self.group),
                // Cluster API reads the contract version from this label.
                "labels": { "cluster.x-k8s.io/v1beta1": VERSION, "cluster.x-k8s.io/provider": "simulated" },
            },
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": plural,
                    "singular": self.kind.to_lowercase(),
                    "categories": ["cluster-api"],
                },
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": {
                        "type": "object",
                        "properties": { "spec": anything, "status": anything },
                    } },
                }],
            },
        })
    }
}
