//! The kinds of k0smotron that the provider plays, as `CustomResourceDefinitions` without a schema of their own.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// What a kind is to Cluster API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Makes the data a machine starts with.
    Bootstrap,
    /// Is a machine.
    Machine,
    /// Is the ground a cluster stands on.
    Cluster,
    /// Is a cluster's control plane.
    ControlPlane,
}

/// A kind of the provider, in version v1beta1 and under the contract of that version.
#[derive(Debug)]
pub struct ProviderKind {
    /// The API group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// What it is to Cluster API.
    pub role: Role,
}

/// The version of every kind.
pub const VERSION: &str = "v1beta1";

/// A worker's bootstrap configuration.
pub const K0S_WORKER_CONFIG: ProviderKind =
    ProviderKind { group: "bootstrap.cluster.x-k8s.io", kind: "K0sWorkerConfig", role: Role::Bootstrap };
/// The same kind in the group that is k0smotron's own.
pub const K0SMOTRON_WORKER_CONFIG: ProviderKind =
    ProviderKind { group: "k0smotron.io", kind: "K0sWorkerConfig", role: Role::Bootstrap };
/// A machine reached over the network.
pub const REMOTE_MACHINE: ProviderKind =
    ProviderKind { group: "infrastructure.cluster.x-k8s.io", kind: "RemoteMachine", role: Role::Machine };
/// A cluster of such machines.
pub const REMOTE_CLUSTER: ProviderKind =
    ProviderKind { group: "infrastructure.cluster.x-k8s.io", kind: "RemoteCluster", role: Role::Cluster };
/// A control plane that runs elsewhere.
pub const K0SMOTRON_CONTROL_PLANE: ProviderKind =
    ProviderKind { group: "controlplane.cluster.x-k8s.io", kind: "K0smotronControlPlane", role: Role::ControlPlane };

/// All of them.
pub const ALL: &[ProviderKind] =
    &[K0S_WORKER_CONFIG, K0SMOTRON_WORKER_CONFIG, REMOTE_MACHINE, REMOTE_CLUSTER, K0SMOTRON_CONTROL_PLANE];

impl ProviderKind {
    /// `<group>/<version>`.
    pub fn api_version(&self) -> String {
        format!("{}/{VERSION}", self.group)
    }

    /// What a dynamic client needs to know.
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
                // Says which contract the kind follows, and in which version of it.
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
