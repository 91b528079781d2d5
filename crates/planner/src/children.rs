//! The three objects a machine is made of: what they are called, and what is in them.
//!
//! Each child carries our ownerRef and our uid in an annotation. Garbage collection can strip the first, so either proves
//! that it is ours. The ownerRef does not claim control: Cluster API has to become the controller of the provider objects.

mod machine;
mod names;

use fivespot_api::keys;
use serde_json::{Map, Value, json};

use crate::observed::{Ref, Refs, Wanted};
use fivespot_validation::validate::{ProviderObject, ValidSpec};

pub use machine::MachineVersion;
pub use names::{ChildNames, label_value};

/// Cluster API's label that says which cluster an object belongs to.
const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The ScheduledMachine that children are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace, and that of every child.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

/// The objects of one machine, ready to be created, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Children {
    /// The bootstrap object.
    pub bootstrap: Value,
    /// The infrastructure object.
    pub infrastructure: Value,
    /// The Machine, which refers to both.
    pub machine: Value,
}

/// Builds the objects of one machine, the Machine in the version that the cluster serves.
pub fn build(owner: Owner<'_>, spec: &ValidSpec, version: MachineVersion) -> Children {
    let names = ChildNames::of(owner.name);
    let provided = |object: &ProviderObject, name: &str| {
        json!({
            "apiVersion": format!("{}/{}", object.group, object.version),
            "kind": object.kind,
            "metadata": metadata(owner, spec, name),
            "spec": object.spec,
        })
    };
    Children {
        bootstrap: provided(&spec.bootstrap, &names.bootstrap),
        infrastructure: provided(&spec.infrastructure, &names.infrastructure),
        machine: json!({
            "apiVersion": version.api_version(),
            "kind": "Machine",
            "metadata": machine_metadata(owner, spec, &names.machine),
            "spec": machine::spec(spec, &names, version),
        }),
    }
}

/// The children that a spec asks for, by what the status says of them.
pub fn wanted(name: &str, spec: &ValidSpec) -> Wanted {
    let names = ChildNames::of(name);
    let child = |object: &ProviderObject, name: String| Ref {
        api_version: format!("{}/{}", object.group, object.version),
        kind: object.kind.clone(),
        name,
    };
    Wanted {
        machine: names.machine,
        refs: Refs {
            bootstrap: child(&spec.bootstrap, names.bootstrap),
            infrastructure: child(&spec.infrastructure, names.infrastructure),
        },
        fingerprint: fingerprint(spec),
    }
}

/// A hash of all that goes into children, whatever version of Cluster API they are written in.
fn fingerprint(spec: &ValidSpec) -> String {
    let provided = |it: &ProviderObject| json!([it.group, it.version, it.kind, it.spec]);
    let all = json!([
        provided(&spec.bootstrap),
        provided(&spec.infrastructure),
        spec.cluster_name,
        spec.machine_template,
        spec.graceful_shutdown_timeout.as_secs(),
        spec.node_drain_timeout.as_secs(),
    ]);
    names::short_hash(&all.to_string())
}

fn metadata(owner: Owner<'_>, spec: &ValidSpec, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": owner.namespace,
        "labels": {
            CLUSTER_NAME_LABEL: spec.cluster_name,
            keys::SCHEDULED_MACHINE_LABEL: label_value(owner.name),
        },
        "annotations": {
            keys::OWNER_UID_ANNOTATION: owner.uid,
            keys::MADE_FROM_ANNOTATION: fingerprint(spec),
        },
        "ownerReferences": [{
            "apiVersion": format!("{}/{}", keys::GROUP, keys::VERSION),
            "kind": "ScheduledMachine",
            "name": owner.name,
            "uid": owner.uid,
            "controller": false,
        }],
    })
}

/// The template's labels and annotations go under ours: a key of ours in a template is refused long before, and would
/// not win here either.
fn machine_metadata(owner: Owner<'_>, spec: &ValidSpec, name: &str) -> Value {
    let mut metadata = metadata(owner, spec, name);
    for (field, template) in
        [("labels", &spec.machine_template.labels), ("annotations", &spec.machine_template.annotations)]
    {
        let mut all: Map<String, Value> =
            template.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
        if let Value::Object(ours) = metadata[field].take() {
            all.extend(ours);
        }
        metadata[field] = Value::Object(all);
    }
    metadata
}
