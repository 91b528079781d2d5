//! Validates the metadata of a manifest, which the schema of a CRD does not describe.

use serde_json::Value;

use crate::names;
use crate::suggestion::{closest, did_you_mean};

/// An error in the metadata of a manifest. `field` is a path such as `metadata.labels[team]`.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("metadata.name is required")]
    NameRequired,
    #[error(
        "metadata.name must be lower-case letters, digits, '-' or '.', beginning and ending with a letter or digit ({name:?})"
    )]
    InvalidName { name: String },
    #[error("metadata.namespace must be the name of a namespace ({namespace:?})")]
    InvalidNamespace { namespace: String },
    #[error("{field} must have a qualified name as key")]
    InvalidKey { field: String },
    #[error("{field} must be a string")]
    NotAString { field: String },
    #[error("{field} must be a valid label value ({value:?})")]
    InvalidLabelValue { field: String, value: String },
    #[error("unknown field `{field}`{}", did_you_mean(*.suggestion))]
    UnknownField { field: String, suggestion: Option<&'static str> },
    #[error("cannot parse metadata: {source}")]
    Malformed { source: serde_json::Error },
}

impl MetadataError {
    /// Path of the field.
    pub fn field(&self) -> &str {
        match self {
            MetadataError::NameRequired | MetadataError::InvalidName { .. } => "metadata.name",
            MetadataError::InvalidNamespace { .. } => "metadata.namespace",
            MetadataError::InvalidKey { field }
            | MetadataError::NotAString { field }
            | MetadataError::InvalidLabelValue { field, .. }
            | MetadataError::UnknownField { field, .. } => field,
            MetadataError::Malformed { .. } => "metadata",
        }
    }
}

/// The fields of `ObjectMeta`.
const FIELDS: [&str; 15] = [
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

pub(super) fn check(metadata: &Value) -> Vec<MetadataError> {
    let mut errors = Vec::new();
    match metadata["name"].as_str() {
        Some(name) if names::is_dns_subdomain(name) => {}
        Some(name) => errors.push(MetadataError::InvalidName { name: name.to_owned() }),
        None if metadata["generateName"].is_string() => {}
        None => errors.push(MetadataError::NameRequired),
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|it| !it.is_empty() && !names::is_dns_label(it)) {
        errors.push(MetadataError::InvalidNamespace { namespace: namespace.to_owned() });
    }
    for map in ["labels", "annotations"] {
        for (key, value) in metadata[map].as_object().into_iter().flatten() {
            let field = format!("metadata.{map}[{key}]");
            if !names::is_qualified_name(key) {
                errors.push(MetadataError::InvalidKey { field: field.clone() });
            }
            match value.as_str() {
                None => errors.push(MetadataError::NotAString { field }),
                Some(value) if map == "labels" && !names::is_label_value(value) => {
                    errors.push(MetadataError::InvalidLabelValue { field, value: value.to_owned() });
                }
                Some(_) => {}
            }
        }
    }
    for (name, _) in metadata.as_object().into_iter().flatten() {
        if !FIELDS.contains(&name.as_str()) {
            let suggestion = closest(name, FIELDS);
            errors.push(MetadataError::UnknownField { field: format!("metadata.{name}"), suggestion });
        }
    }
    errors
}
