//! Judges a manifest with no cluster at hand, and gives the same verdict as one would: the kind, the schema, then every
//! rule of the admission policy and of the controller.

use fivespot_api::{ScheduledMachine, keys};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::names;
use crate::schema::{self, SchemaError};
use crate::validate::{Standard, ValidSpec, validate};

/// Namespace of an object that names none, as kubectl has it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A manifest that every validator accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The object as written, defaults filled in.
    pub object: ScheduledMachine,
    /// Its spec, parsed.
    pub spec: ValidSpec,
}

/// Something that is wrong with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is some other object.
    #[error("is {found}, not a ScheduledMachine of {}/{}", keys::GROUP, keys::VERSION)]
    NotOurs {
        /// What it is.
        found: String,
    },
    /// Its metadata will be refused.
    #[error("{field}: {reason}")]
    Metadata {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The schema refuses it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A rule refuses it.
    #[error(transparent)]
    Rule(#[from] crate::validate::SpecError),
}

impl DocumentError {
    /// Path of the field that is at fault.
    pub fn field(&self) -> &str {
        match self {
            DocumentError::NotOurs { .. } => "kind",
            DocumentError::Metadata { field, .. } => field,
            DocumentError::Schema(error) => &error.field,
            DocumentError::Rule(error) => &error.field,
        }
    }
}

/// Judges one manifest. The rules are asked only of what the schema accepts, as on an API server.
pub fn judge(crd: &CustomResourceDefinition, manifest: &Value) -> Result<Document, Vec<DocumentError>> {
    if !is_ours(manifest) {
        return Err(vec![DocumentError::NotOurs { found: describe(manifest) }]);
    }
    let mut manifest = manifest.clone();
    schema::normalize(crd, &mut manifest);
    if let Some(fields) = manifest.as_object_mut() {
        // The status is the controller's: the API server drops what a user writes there, whatever it is.
        fields.remove("status");
    }
    let mut errors = metadata(&manifest["metadata"]);
    errors.extend(schema::check(crd, &manifest).into_iter().map(DocumentError::Schema));
    if !errors.is_empty() {
        return Err(errors);
    }
    // The schema is derived from these very types, so only metadata can still fail to be read.
    let object: ScheduledMachine = serde_json::from_value(manifest)
        .map_err(|error| vec![DocumentError::Metadata { field: "metadata".to_owned(), reason: error.to_string() }])?;
    let namespace = object.metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    match validate(&object.spec, &namespace, Standard::Admission) {
        Ok(spec) => Ok(Document { object, spec }),
        Err(errors) => Err(errors.iter().cloned().map(DocumentError::Rule).collect()),
    }
}

/// Whether a manifest says it is a ScheduledMachine.
pub fn is_ours(manifest: &Value) -> bool {
    manifest["kind"] == "ScheduledMachine" && manifest["apiVersion"] == format!("{}/{}", keys::GROUP, keys::VERSION)
}

fn describe(manifest: &Value) -> String {
    let part = |name: &str| manifest[name].as_str().unwrap_or("?").to_owned();
    match manifest {
        Value::Object(_) => format!("a {} of {}", part("kind"), part("apiVersion")),
        _ => "no object".to_owned(),
    }
}

/// Every field that metadata has.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

fn metadata(metadata: &Value) -> Vec<DocumentError> {
    let mut errors = Vec::new();
    let mut fault = |field: String, reason: String| {
        errors.push(DocumentError::Metadata { field: format!("metadata.{field}"), reason });
    };
    match metadata["name"].as_str() {
        Some(name) if names::is_dns_subdomain(name) => {}
        Some(name) => fault(
            "name".to_owned(),
            format!(
                "{name:?} must be lower-case letters, digits, '-' or '.', beginning and ending with a letter or digit"
            ),
        ),
        None if metadata["generateName"].is_string() => {}
        None => fault("name".to_owned(), "is required".to_owned()),
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|it| !it.is_empty() && !names::is_dns_label(it)) {
        fault("namespace".to_owned(), format!("{namespace:?} cannot be the name of a namespace"));
    }
    for list in ["labels", "annotations"] {
        for (key, value) in metadata[list].as_object().into_iter().flatten() {
            if !names::is_qualified_name(key) {
                fault(format!("{list}[{key}]"), "the key must be a qualified name".to_owned());
            }
            match value.as_str() {
                None => fault(format!("{list}[{key}]"), "must be a string".to_owned()),
                Some(text) if list == "labels" && !names::is_label_value(text) => {
                    fault(format!("{list}[{key}]"), format!("{text:?} must be a valid label value"));
                }
                Some(_) => {}
            }
        }
    }
    for unknown in metadata.as_object().into_iter().flatten().map(|(key, _)| key) {
        if !METADATA.contains(&unknown.as_str()) {
            fault(unknown.clone(), "is no field of this kind: check its spelling".to_owned());
        }
    }
    errors
}
