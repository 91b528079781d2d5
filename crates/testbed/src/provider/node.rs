//! The Node that a `RemoteMachine` becomes: its name, its providerID, and the cluster it joins.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::behaviour::Joining;
use super::context::{Context, ProviderError};
use super::machine::CLUSTER_NAME;
use crate::access::Access;
use crate::kwok::FAKE_NODE;

/// What a label value, and so a host name, may have.
const LONGEST_NAME: usize = 63;

/// Which control plane the machines of a Cluster join.
#[derive(Debug, Default)]
pub(super) struct Homes {
    elsewhere: Mutex<HashMap<(String, String), Access>>,
}

impl Homes {
    pub(super) fn set(&self, namespace: &str, cluster: &str, home: Access) {
        self.elsewhere.lock().expect("no holder panics").insert((namespace.to_owned(), cluster.to_owned()), home);
    }

    fn elsewhere(&self, machine: &DynamicObject) -> Option<Access> {
        let cluster = machine.labels().get(CLUSTER_NAME).cloned().unwrap_or_default();
        let key = (machine.namespace().unwrap_or_default(), cluster);
        self.elsewhere.lock().expect("no holder panics").get(&key).cloned()
    }
}

/// The name of the Node that a `RemoteMachine` becomes: unique in a cluster that several namespaces share.
pub fn node_name(namespace: &str, remote_machine: &str) -> String {
    let full = format!("{namespace}-{remote_machine}");
    if full.len() <= LONGEST_NAME {
        return full;
    }
    let mut hash = String::new();
    for byte in &Sha256::digest(&full)[..4] {
        write!(hash, "{byte:02x}").expect("writing to a String cannot fail");
    }
    format!("{}-{hash}", full[..LONGEST_NAME - 9].trim_end_matches(['-', '.']))
}

/// The providerID of a `RemoteMachine` at an address: the same for every machine that is made there, as in reality.
pub fn provider_id(namespace: &str, address: &str) -> String {
    format!("remote-machine://{namespace}/{address}")
}

pub(super) fn provider_id_of(machine: &DynamicObject) -> String {
    let address = machine.data.pointer("/spec/address").and_then(Value::as_str).map(str::to_owned);
    provider_id(&machine.namespace().unwrap_or_default(), &address.unwrap_or_else(|| machine.name_any()))
}

/// Registers the Node, as a kubelet does, unless a kubelet does it, and gives its name. A Node that is there already must be the same machine's.
pub(super) async fn join(machine: &DynamicObject, context: &Context) -> Result<String, ProviderError> {
    let name = node_name(&machine.namespace().unwrap_or_default(), &machine.name_any());
    let ours = provider_id_of(machine);
    if context.script.behaviour_of(machine).joining == Joining::ByKubelet {
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
        "spec": { "providerID": ours },
    }))
    .map_err(kube::Error::SerdeError)?;
    let nodes = nodes(machine, context);
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {
            context.log(machine, &format!("Node {name} joined"));
            Ok(name)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let other = nodes.get(&name).await?.spec.and_then(|spec| spec.provider_id);
            if other.as_ref() == Some(&ours) { Ok(name) } else { Err(ProviderError::ForeignNode { name, other, ours }) }
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the Node if it is this machine's.
pub(super) async fn leave(machine: &DynamicObject, context: &Context) -> Result<(), ProviderError> {
    let name = node_name(&machine.namespace().unwrap_or_default(), &machine.name_any());
    let nodes = nodes(machine, context);
    let Some(node) = nodes.get_opt(&name).await? else { return Ok(()) };
    let uid = node.uid();
    if node.spec.and_then(|spec| spec.provider_id) != Some(provider_id_of(machine)) {
        return Ok(());
    }
    context.log(machine, &format!("Node {name} leaves"));
    let only_this =
        DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() };
    match nodes.delete(&name, &only_this).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn nodes(machine: &DynamicObject, context: &Context) -> Api<Node> {
    let client: Client = match context.homes.elsewhere(machine) {
        Some(home) => home.client(),
        None => context.client(),
    };
    Api::all(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_shortened_and_stays_unique() {
        let long = "a".repeat(60);
        let (one, two) = (node_name("n", &format!("{long}1")), node_name("n", &format!("{long}2")));
        assert!(one.len() <= LONGEST_NAME);
        assert_ne!(one, two);
        assert_eq!(node_name("n", "m"), "n-m");
    }
}
