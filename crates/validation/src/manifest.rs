//! Validates a manifest offline, with the same result as an API server: first the schema, then the rules of the admission policy
//! and of the controller.

mod metadata;

use fivespot_api::{ScheduledMachine, keys};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::schema::{self, SchemaError};
use crate::validate::{self, SpecError, Standard, ValidSpec};

pub use metadata::MetadataError;

/// Namespace of an object that does not set one.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A manifest that an API server would store and the controller would act on.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidManifest {
    /// The object, with defaults.
    pub object: ScheduledMachine,
    pub spec: ValidSpec,
}

/// An error in a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("expected a ScheduledMachine of {}/{}, found {found}", keys::GROUP, keys::VERSION)]
    WrongKind { found: String },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Rule(#[from] SpecError),
}

impl ManifestError {
    /// Path of the field.
    pub fn field(&self) -> &str {
        match self {
            ManifestError::WrongKind { .. } => "kind",
            ManifestError::Metadata(error) => error.field(),
            ManifestError::Schema(error) => error.field(),
            ManifestError::Rule(error) => &error.field,
        }
    }
}

/// Validates a manifest. Like in an API server, the rules apply only if the schema accepts the manifest.
pub fn validate(crd: &CustomResourceDefinition, manifest: &Value) -> Result<ValidManifest, Vec<ManifestError>> {
    if !is_scheduled_machine(manifest) {
        return Err(vec![ManifestError::WrongKind { found: describe(manifest) }]);
    }
    let mut manifest = manifest.clone();
    schema::normalize(crd, &mut manifest);
    if let Some(fields) = manifest.as_object_mut() {
        // The API server ignores the status in objects that users write.
        fields.remove("status");
    }
    let mut errors: Vec<ManifestError> =
        metadata::check(&manifest["metadata"]).into_iter().map(ManifestError::from).collect();
    errors.extend(schema::check(crd, &manifest).into_iter().map(ManifestError::from));
    if !errors.is_empty() {
        return Err(errors);
    }
    // The schema is derived from these types, so only the metadata can fail to deserialize.
    let object: ScheduledMachine =
        serde_json::from_value(manifest).map_err(|source| vec![MetadataError::Malformed { source }.into()])?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    match validate::validate(&object.spec, namespace, Standard::Admission) {
        Ok(spec) => Ok(ValidManifest { object, spec }),
        Err(errors) => Err(errors.iter().cloned().map(ManifestError::from).collect()),
    }
}

/// Whether the manifest has the kind and API version of a ScheduledMachine.
pub fn is_scheduled_machine(manifest: &Value) -> bool {
    manifest["kind"] == "ScheduledMachine" && manifest["apiVersion"] == format!("{}/{}", keys::GROUP, keys::VERSION)
}

fn describe(manifest: &Value) -> String {
    let part = |name: &str| manifest[name].as_str().unwrap_or("?").to_owned();
    match manifest {
        Value::Object(_) => format!("a {} of {}", part("kind"), part("apiVersion")),
        _ => "something that is not an object".to_owned(),
    }
}
