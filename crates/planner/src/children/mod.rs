//! Names and manifests of the children: the Machine, its bootstrap object and its infrastructure object.
//!
//! Each child has an ownerRef to its ScheduledMachine and an annotation with its uid. Garbage collection can strip the
//! ownerRef, so either proves ownership. The ownerRef is not a controller reference: Cluster API becomes the controller of
//! the provider objects.

mod machine;
mod names;

use fivespot_api::{ScheduledMachineSpec, keys};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::observed::{DesiredChildren, Ref, Refs};
use fivespot_validation::validate::{ProviderObject, ValidSpec};

pub use machine::MachineVersion;
pub use names::{ChildNames, label_value};

const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The ScheduledMachine that owns the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    pub name: &'a str,
    /// Namespace of the owner and of every child.
    pub namespace: &'a str,
    pub uid: &'a str,
}

/// The manifests of one machine as JSON, to be created in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Children {
    pub bootstrap: String,
    pub infrastructure: String,
    /// Refers to both.
    pub machine: String,
}

/// The specs of the provider objects. A [`ValidSpec`] has only their digests. They are not parsed: a spec that is small as a
/// text can be large as a value.
#[derive(Clone, Debug)]
pub struct InlineSpecs {
    pub bootstrap: Box<RawValue>,
    pub infrastructure: Box<RawValue>,
}

impl From<&ScheduledMachineSpec> for InlineSpecs {
    fn from(spec: &ScheduledMachineSpec) -> Self {
        let text = |spec: &Map<String, Value>| to_raw_value(spec).expect("a JSON object has strings as keys");
        InlineSpecs { bootstrap: text(&spec.bootstrap_spec.spec), infrastructure: text(&spec.infrastructure_spec.spec) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a, S> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    spec: S,
}

impl<S: Serialize> Manifest<'_, S> {
    fn json(&self) -> String {
        serde_json::to_string(self).expect("a manifest has strings as keys")
    }
}

/// Builds the manifests, the Machine in the API version that the cluster serves.
pub fn build(owner: Owner<'_>, spec: &ValidSpec, inline: &InlineSpecs, version: MachineVersion) -> Children {
    let names = ChildNames::of(owner.name);
    let provider_object = |object: &ProviderObject, spec_text: &RawValue, name: &str| {
        let api_version = format!("{}/{}", object.group, object.version);
        let metadata = metadata(owner, spec, name);
        Manifest { api_version: &api_version, kind: &object.kind, metadata, spec: spec_text }.json()
    };
    let machine = Manifest {
        api_version: &version.api_version(),
        kind: "Machine",
        metadata: machine_metadata(owner, spec, &names.machine),
        spec: machine::spec(spec, &names, version),
    };
    Children {
        bootstrap: provider_object(&spec.bootstrap, &inline.bootstrap, &names.bootstrap),
        infrastructure: provider_object(&spec.infrastructure, &inline.infrastructure, &names.infrastructure),
        machine: machine.json(),
    }
}

/// The children that a spec asks for.
pub fn desired(name: &str, spec: &ValidSpec) -> DesiredChildren {
    let names = ChildNames::of(name);
    let child = |object: &ProviderObject, name: String| Ref {
        api_version: format!("{}/{}", object.group, object.version),
        kind: object.kind.clone(),
        name,
    };
    DesiredChildren {
        machine: names.machine,
        refs: Refs {
            bootstrap: child(&spec.bootstrap, names.bootstrap),
            infrastructure: child(&spec.infrastructure, names.infrastructure),
        },
        fingerprint: fingerprint(spec),
    }
}

/// Hash of everything that goes into the children, independent of the API version in which they are written.
fn fingerprint(spec: &ValidSpec) -> String {
    let parts = |object: &ProviderObject| json!([object.group, object.version, object.kind, object.spec_digest]);
    let all = json!([
        parts(&spec.bootstrap),
        parts(&spec.infrastructure),
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
            keys::SPEC_HASH_ANNOTATION: fingerprint(spec),
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

/// The controller's own keys win over the template's. Validation rejects such a template anyway.
fn machine_metadata(owner: Owner<'_>, spec: &ValidSpec, name: &str) -> Value {
    let mut metadata = metadata(owner, spec, name);
    for (field, template) in
        [("labels", &spec.machine_template.labels), ("annotations", &spec.machine_template.annotations)]
    {
        let mut all: Map<String, Value> =
            template.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
        if let Value::Object(own) = metadata[field].take() {
            all.extend(own);
        }
        metadata[field] = Value::Object(all);
    }
    metadata
}
