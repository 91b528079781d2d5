//! The Node of a `RemoteMachine`: its name, its providerID, and the workload cluster that it joins.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::behaviour::Joining;
use super::context::{Context, ProviderError};
use super::machine::CLUSTER_NAME;
use crate::access::Access;
use crate::kwok::FAKE_NODE;

/// The limit of a label value, and so of a host name.
const MAX_NAME_LENGTH: usize = 63;

/// Credentials of workload clusters, by namespace and name of the Cluster.
#[derive(Debug, Default)]
pub(super) struct WorkloadClusters {
    access: Mutex<HashMap<(String, String), Access>>,
}

impl WorkloadClusters {
    pub(super) fn set(&self, namespace: &str, cluster: &str, access: Access) {
        self.lock().insert((namespace.to_owned(), cluster.to_owned()), access);
    }

    /// `None` if the machine joins the management cluster.
    fn of(&self, machine: &DynamicObject) -> Option<Access> {
        let cluster = machine.labels().get(CLUSTER_NAME).cloned().unwrap_or_default();
        self.lock().get(&(machine.namespace().unwrap_or_default(), cluster)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Access>> {
        self.access.lock().expect("no thread panics while holding the lock")
    }
}

/// The name of the Node of a `RemoteMachine`. Contains the namespace, because several namespaces share a cluster.
pub fn node_name(namespace: &str, remote_machine: &str) -> String {
    let full = format!("{namespace}-{remote_machine}");
    if full.len() <= MAX_NAME_LENGTH {
        return full;
    }
    let mut hash = String::new();
    for byte in &Sha256::digest(&full)[..4] {
        write!(hash, "{byte:02x}").expect("writing to a String cannot fail");
    }
    format!("{}-{hash}", full[..MAX_NAME_LENGTH - 9].trim_end_matches(['-', '.']))
}

/// The providerID of a `RemoteMachine`. Depends only on the address, so a recreated machine has the same one, as with k0smotron.
pub fn provider_id(namespace: &str, address: &str) -> String {
    format!("remote-machine://{namespace}/{address}")
}

pub(super) fn provider_id_of(machine: &DynamicObject) -> String {
    let address = machine.data.pointer("/spec/address").and_then(Value::as_str).map(str::to_owned);
    provider_id(&machine.namespace().unwrap_or_default(), &address.unwrap_or_else(|| machine.name_any()))
}

/// Registers the Node, unless a real kubelet does, and returns its name. Fails if a Node with that name has another providerID.
pub(super) async fn join(machine: &DynamicObject, context: &Context) -> Result<String, ProviderError> {
    let name = node_name(&machine.namespace().unwrap_or_default(), &machine.name_any());
    let expected = provider_id_of(machine);
    if context.rules.behaviour_of(machine).joining == Joining::ByKubelet {
        return Ok(name);
    }
    let (annotation, value) = FAKE_NODE;
    let node: Node = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": { annotation: value },
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": { "providerID": expected },
    }))
    .map_err(kube::Error::SerdeError)?;
    let nodes = nodes(machine, context);
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {
            context.log(machine, &format!("registered Node {name}"));
            Ok(name)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let actual = nodes.get(&name).await?.spec.and_then(|spec| spec.provider_id);
            if actual.as_ref() == Some(&expected) {
                Ok(name)
            } else {
                Err(ProviderError::ProviderIdMismatch { name, actual, expected })
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the Node if it has this machine's providerID.
pub(super) async fn leave(machine: &DynamicObject, context: &Context) -> Result<(), ProviderError> {
    let name = node_name(&machine.namespace().unwrap_or_default(), &machine.name_any());
    let nodes = nodes(machine, context);
    let Some(node) = nodes.get_opt(&name).await? else { return Ok(()) };
    let uid = node.uid();
    if node.spec.and_then(|spec| spec.provider_id) != Some(provider_id_of(machine)) {
        return Ok(());
    }
    context.log(machine, &format!("deleting Node {name}"));
    let this_uid =
        DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() };
    match nodes.delete(&name, &this_uid).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn nodes(machine: &DynamicObject, context: &Context) -> Api<Node> {
    let workload = context.workload_clusters.of(machine);
    Api::all(workload.map_or_else(|| context.client(), |access| access.client()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_shortened_and_unique() {
        let long = "a".repeat(60);
        let (one, two) = (node_name("n", &format!("{long}1")), node_name("n", &format!("{long}2")));
        assert!(one.len() <= MAX_NAME_LENGTH);
        assert_ne!(one, two);
        assert_eq!(node_name("n", "m"), "n-m");
    }
}
