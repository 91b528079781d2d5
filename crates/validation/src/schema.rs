//! Judges a document by the structural schema of the CRD, as the API server does before anything else sees it.
//!
//! Kubernetes' dialect of JSON schema is small, and its verdicts have to name fields as the API server does, so this
//! walks the very schema that is shipped. A keyword it does not know would make it more lenient than the API server; a
//! test says so when the schema gains one.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// One thing the schema refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fault}")]
pub struct SchemaError {
    /// Path of the field, such as `spec.nodeTaints[0].effect`.
    pub field: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What the schema can refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The field has to be there.
    #[error("is required")]
    Missing,
    /// The field is none of the schema's.
    #[error("is no field of this kind: check its spelling")]
    Unknown,
    /// The value is of another type.
    #[error("must be {expected}, not {found}")]
    Type {
        /// What it should be.
        expected: String,
        /// What it is.
        found: &'static str,
    },
    /// The value is none of the possible ones.
    #[error("must be one of {}", .allowed.join(", "))]
    Enum {
        /// The possible ones.
        allowed: Vec<String>,
    },
    /// The number is out of its range.
    #[error("must be {bound}")]
    Range {
        /// The bound it breaks.
        bound: String,
    },
    /// The list, map or text is too long or too short.
    #[error("must have {bound}, has {found}")]
    Size {
        /// The bound it breaks.
        bound: String,
        /// Its size.
        found: usize,
    },
}

/// Everything in `document` that the schema of `crd` refuses, unknown fields included, as with `kubectl apply`.
pub fn check(crd: &CustomResourceDefinition, document: &Value) -> Vec<SchemaError> {
    let mut errors = Vec::new();
    for version in &crd.spec.versions {
        if let Some(schema) = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref()) {
            Walk { errors: &mut errors }.value(schema, document, &Path::Root);
        }
    }
    errors
}

/// Drops every `null` that stands for a field which does not take it, as the API server does before it looks further, and
/// writes whole numbers as such where the schema asks for an integer.
pub fn normalize(crd: &CustomResourceDefinition, document: &mut Value) {
    for version in &crd.spec.versions {
        if let Some(schema) = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref()) {
            normalize_by(schema, document);
        }
    }
}

fn normalize_by(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(schema) = field_schema(schema, name) else { return true };
            normalize_by(schema, value);
            !value.is_null() || schema.nullable == Some(true)
        }),
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
                for item in items {
                    normalize_by(each, item);
                }
            }
        }
        Value::Number(number) if schema.type_.as_deref() == Some("integer") => {
            if let Some(whole) = whole_number(number) {
                *value = Value::from(whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `50.0` as the 50 that it is.
#[allow(
    clippy::cast_possible_truncation,
    reason = "only numbers without a fraction, within what a float holds exactly"
)]
fn whole_number(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() <= EXACT)?;
    Some(whole as i64)
}

/// What the schema says of a field: by its name, or of all alike.
fn field_schema<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    let named = schema.properties.as_ref().and_then(|it| it.get(name));
    named.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    })
}

/// Where in the document a value stands.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Fields that every object has and no schema lists.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

struct Walk<'a> {
    errors: &'a mut Vec<SchemaError>,
}

impl Walk<'_> {
    fn add(&mut self, path: &Path<'_>, fault: Fault) {
        self.errors.push(SchemaError { field: path.to_string(), fault });
    }

    fn value(&mut self, schema: &JSONSchemaProps, value: &Value, path: &Path<'_>) {
        if value.is_null() && schema.nullable == Some(true) {
            return;
        }
        if let Some(expected) = schema.type_.as_deref().filter(|it| !is_of_type(value, it)) {
            let fault = Fault::Type { expected: with_article(expected), found: type_name(value) };
            return self.add(path, fault);
        }
        self.allowed_values(schema, value, path);
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => self.array(schema, items, path),
            Value::Number(number) => self.number(schema, number.as_f64(), path),
            Value::String(text) => {
                self.size(text.chars().count(), (schema.min_length, schema.max_length), "characters", path);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn allowed_values(&mut self, schema: &JSONSchemaProps, value: &Value, path: &Path<'_>) {
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|it| it.0 == *value)
        {
            let allowed = allowed.iter().map(|it| it.0.as_str().map_or_else(|| it.0.to_string(), str::to_owned));
            self.add(path, Fault::Enum { allowed: allowed.collect() });
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, fields: &Map<String, Value>, path: &Path<'_>) {
        self.size(fields.len(), (schema.min_properties, schema.max_properties), "entries", path);
        for name in schema.required.iter().flatten().filter(|it| !fields.contains_key(*it)) {
            self.add(&Path::Field(path, name), Fault::Missing);
        }
        let at_root = matches!(path, Path::Root);
        for (name, value) in fields {
            let path = Path::Field(path, name);
            let free = schema.x_kubernetes_preserve_unknown_fields == Some(true)
                || (at_root && OF_EVERY_OBJECT.contains(&name.as_str()));
            match field_schema(schema, name) {
                Some(field) => self.value(field, value, &path),
                None if free => {}
                None => self.add(&path, Fault::Unknown),
            }
        }
    }

    fn array(&mut self, schema: &JSONSchemaProps, items: &[Value], path: &Path<'_>) {
        self.size(items.len(), (schema.min_items, schema.max_items), "entries", path);
        if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
            for (index, item) in items.iter().enumerate() {
                self.value(each, item, &Path::Item(path, index));
            }
        }
    }

    fn number(&mut self, schema: &JSONSchemaProps, number: Option<f64>, path: &Path<'_>) {
        let Some(number) = number else { return };
        if let Some(least) = schema.minimum.filter(|it| number < *it) {
            self.add(path, Fault::Range { bound: format!("at least {least}") });
        }
        if let Some(most) = schema.maximum.filter(|it| number > *it) {
            self.add(path, Fault::Range { bound: format!("at most {most}") });
        }
    }

    fn size(&mut self, found: usize, bounds: (Option<i64>, Option<i64>), of: &str, path: &Path<'_>) {
        let size = i64::try_from(found).unwrap_or(i64::MAX);
        let (least, most) = bounds;
        if let Some(least) = least.filter(|it| size < *it) {
            self.add(path, Fault::Size { bound: format!("at least {least} {of}"), found });
        }
        if let Some(most) = most.filter(|it| size > *it) {
            self.add(path, Fault::Size { bound: format!("at most {most} {of}"), found });
        }
    }
}

fn is_of_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0),
        "number" => value.is_number(),
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn with_article(expected: &str) -> String {
    match expected {
        "array" => "a list".to_owned(),
        "object" | "integer" => format!("an {expected}"),
        other => format!("a {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What `check` judges.
    const JUDGED: [&str; 16] = [
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
    ];
    /// What refuses nothing in a spec: documentation, defaults, and formats of integers whose range is given as well.
    const HARMLESS: [&str; 4] = ["default", "title", "description", "format"];

    /// Keywords in the schema of the spec that `check` would have to judge and does not. (A status is never judged: the
    /// API server drops it from what users write.)
    fn unknown_keywords(schema: &Value, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            let here = format!("{path}/{keyword}");
            match keyword.as_str() {
                "properties" => {
                    for (name, property) in value.as_object().into_iter().flatten() {
                        found.extend(unknown_keywords(property, &format!("{here}/{name}")));
                    }
                }
                "items" | "additionalProperties" => found.extend(unknown_keywords(value, &here)),
                known if JUDGED.contains(&known) || HARMLESS.contains(&known) => {}
                _ => found.push(here),
            }
        }
        found
    }

    fn faults(document: &Value) -> Vec<String> {
        check(&fivespot_api::crd(), document).iter().map(ToString::to_string).collect()
    }

    fn good() -> Value {
        json!({
            "apiVersion": "5spot.finos.org/v1alpha1",
            "kind": "ScheduledMachine",
            "metadata": { "name": "a" },
            "spec": {
                "schedule": { "cron": "0 9 * * *" },
                "clusterName": "c",
                "bootstrapSpec": { "apiVersion": "a/v1", "kind": "B", "spec": { "anything": [1, { "goes": true }] } },
                "infrastructureSpec": { "apiVersion": "a/v1", "kind": "B", "spec": {} },
            },
        })
    }

    #[test]
    fn every_keyword_in_the_schema_of_the_spec_is_judged() {
        let version = fivespot_api::crd().spec.versions.remove(0);
        let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
        assert_eq!(unknown_keywords(&schema["properties"]["spec"], "spec"), Vec::<String>::new());
    }

    #[test]
    fn a_good_document_passes_whatever_its_provider_specs_hold() {
        assert_eq!(faults(&good()), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_told_with_its_path() {
        let cases = [
            ("/spec/priority", json!("high"), "spec.priority: must be an integer, not a string"),
            ("/spec/priority", json!(256), "spec.priority: must be at most 255"),
            ("/spec/priority", json!(-1), "spec.priority: must be at least 0"),
            ("/spec/killSwitch", json!("yes"), "spec.killSwitch: must be a boolean, not a string"),
            ("/spec/killIfCommands", json!([""]), "spec.killIfCommands[0]: must have at least 1 characters, has 0"),
            (
                "/spec/killIfCommands",
                json!(vec!["a"; 101]),
                "spec.killIfCommands: must have at most 100 entries, has 101",
            ),
            (
                "/spec/nodeTaints",
                json!([{ "key": "a", "effect": "Maybe" }]),
                "spec.nodeTaints[0].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute",
            ),
            ("/spec/nodeTaints", json!([{ "key": "a" }]), "spec.nodeTaints[0].effect: is required"),
            (
                "/spec/schedule/daysOfWeeks",
                json!([]),
                "spec.schedule.daysOfWeeks: is no field of this kind: check its spelling",
            ),
            ("/spec/nodeTaints", json!([null]), "spec.nodeTaints[0]: must be an object, not null"),
        ];
        for (pointer, value, expected) in cases {
            let mut document = good();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[field] = value;
            assert_eq!(faults(&document), [expected], "{pointer}");
        }
    }

    #[test]
    fn a_null_is_dropped_where_the_schema_knows_the_field_and_kept_where_it_does_not() {
        let mut document = good();
        document["spec"]["killIfCommands"] = Value::Null;
        document["spec"]["clusterName"] = Value::Null;
        document["spec"]["bootstrapSpec"]["spec"]["kept"] = Value::Null;
        document["spec"]["priority"] = json!(50.0);
        normalize(&fivespot_api::crd(), &mut document);
        assert_eq!(document["spec"]["priority"], json!(50));
        assert_eq!(document["spec"].get("killIfCommands"), None);
        assert_eq!(document["spec"]["bootstrapSpec"]["spec"].get("kept"), Some(&Value::Null));
        assert_eq!(faults(&document), ["spec.clusterName: is required"]);
    }
}
