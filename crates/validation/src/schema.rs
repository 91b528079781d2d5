//! Validates a manifest against the structural schema of the CRD, like the API server.
//!
//! This implements only the keywords that the schema of the CRD uses, so that errors can name fields as the API server does
//! (see ADR 5). A test fails if the schema gains a keyword that is not implemented.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

use crate::suggestion::{closest, did_you_mean};

/// A violation of the schema. `field` is a path such as `spec.nodeTaints[0].effect`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("{field} is required")]
    Required { field: String },
    #[error("unknown field `{field}`{}", did_you_mean(.suggestion.as_deref()))]
    UnknownField {
        field: String,
        /// The name of a similar field at the same level.
        suggestion: Option<String>,
    },
    #[error("{field} must be {expected}, not {found}")]
    WrongType { field: String, expected: String, found: &'static str },
    #[error("{field} must be one of {}", .allowed.join(", "))]
    NotInEnum { field: String, allowed: Vec<String> },
    #[error("{field} must be {bound}")]
    OutOfRange { field: String, bound: String },
    #[error("{field} must have {bound}, has {found}")]
    WrongSize { field: String, bound: String, found: usize },
}

impl SchemaError {
    /// Path of the field.
    pub fn field(&self) -> &str {
        match self {
            SchemaError::Required { field }
            | SchemaError::UnknownField { field, .. }
            | SchemaError::WrongType { field, .. }
            | SchemaError::NotInEnum { field, .. }
            | SchemaError::OutOfRange { field, .. }
            | SchemaError::WrongSize { field, .. } => field,
        }
    }
}

/// Returns all violations of the schema of `crd`, including unknown fields, which `kubectl apply` rejects too.
pub fn check(crd: &CustomResourceDefinition, manifest: &Value) -> Vec<SchemaError> {
    let mut errors = Vec::new();
    for version in &crd.spec.versions {
        if let Some(schema) = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref()) {
            Validator { errors: &mut errors }.value(schema, manifest, &Path::Root);
        }
    }
    errors
}

/// Normalizes a manifest like the API server before it validates: drops every `null` of a field that is not nullable, and
/// converts whole floating-point numbers to integers where the schema expects an integer.
pub fn normalize(crd: &CustomResourceDefinition, manifest: &mut Value) {
    for version in &crd.spec.versions {
        if let Some(schema) = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref()) {
            normalize_value(schema, manifest);
        }
    }
}

fn normalize_value(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(schema) = field_schema(schema, name) else { return true };
            normalize_value(schema, value);
            !value.is_null() || schema.nullable == Some(true)
        }),
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
                for item in items {
                    normalize_value(each, item);
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

/// Converts `50.0` to 50.
#[allow(clippy::cast_possible_truncation, reason = "only whole numbers that a float represents exactly")]
fn whole_number(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() <= EXACT)?;
    Some(whole as i64)
}

/// The schema of a field: its own, or that of all additional properties.
fn field_schema<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    let named = schema.properties.as_ref().and_then(|it| it.get(name));
    named.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    })
}

/// The path of a value in the manifest.
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

/// Fields of every object, which the schema does not list.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

struct Validator<'a> {
    errors: &'a mut Vec<SchemaError>,
}

impl Validator<'_> {
    fn value(&mut self, schema: &JSONSchemaProps, value: &Value, path: &Path<'_>) {
        if value.is_null() && schema.nullable == Some(true) {
            return;
        }
        if let Some(expected) = schema.type_.as_deref().filter(|it| !is_of_type(value, it)) {
            self.errors.push(SchemaError::WrongType {
                field: path.to_string(),
                expected: with_article(expected),
                found: type_name(value),
            });
            return;
        }
        self.allowed_values(schema, value, path);
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => self.array(schema, items, path),
            Value::Number(number) => self.number(schema, number.as_f64(), path),
            Value::String(text) => {
                self.size(text.chars().count(), (schema.min_length, schema.max_length), Unit::Characters, path);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn allowed_values(&mut self, schema: &JSONSchemaProps, value: &Value, path: &Path<'_>) {
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|it| it.0 == *value)
        {
            let allowed = allowed.iter().map(|it| it.0.as_str().map_or_else(|| it.0.to_string(), str::to_owned));
            self.errors.push(SchemaError::NotInEnum { field: path.to_string(), allowed: allowed.collect() });
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, fields: &Map<String, Value>, path: &Path<'_>) {
        self.size(fields.len(), (schema.min_properties, schema.max_properties), Unit::Entries, path);
        for name in schema.required.iter().flatten().filter(|it| !fields.contains_key(*it)) {
            self.errors.push(SchemaError::Required { field: Path::Field(path, name).to_string() });
        }
        let at_root = matches!(path, Path::Root);
        for (name, value) in fields {
            let path = Path::Field(path, name);
            let is_allowed = schema.x_kubernetes_preserve_unknown_fields == Some(true)
                || (at_root && OBJECT_FIELDS.contains(&name.as_str()));
            match field_schema(schema, name) {
                Some(field) => self.value(field, value, &path),
                None if is_allowed => {}
                None => {
                    let known = schema.properties.iter().flat_map(|properties| properties.keys()).map(String::as_str);
                    let known = known.chain(OBJECT_FIELDS.into_iter().filter(|_| at_root));
                    let suggestion = closest(name, known).map(str::to_owned);
                    self.errors.push(SchemaError::UnknownField { field: path.to_string(), suggestion });
                }
            }
        }
    }

    fn array(&mut self, schema: &JSONSchemaProps, items: &[Value], path: &Path<'_>) {
        self.size(items.len(), (schema.min_items, schema.max_items), Unit::Entries, path);
        if let Some(JSONSchemaPropsOrArray::Schema(each)) = &schema.items {
            for (index, item) in items.iter().enumerate() {
                self.value(each, item, &Path::Item(path, index));
            }
        }
    }

    fn number(&mut self, schema: &JSONSchemaProps, number: Option<f64>, path: &Path<'_>) {
        let Some(number) = number else { return };
        let minimum = schema.minimum.filter(|minimum| number < *minimum).map(|minimum| format!("at least {minimum}"));
        let maximum = schema.maximum.filter(|maximum| number > *maximum).map(|maximum| format!("at most {maximum}"));
        for bound in minimum.into_iter().chain(maximum) {
            self.errors.push(SchemaError::OutOfRange { field: path.to_string(), bound });
        }
    }

    fn size(&mut self, found: usize, (min, max): (Option<i64>, Option<i64>), unit: Unit, path: &Path<'_>) {
        let size = i64::try_from(found).unwrap_or(i64::MAX);
        let min = min.filter(|min| size < *min).map(|min| format!("at least {}", unit.count(min)));
        let max = max.filter(|max| size > *max).map(|max| format!("at most {}", unit.count(max)));
        for bound in min.into_iter().chain(max) {
            self.errors.push(SchemaError::WrongSize { field: path.to_string(), bound, found });
        }
    }
}

/// What the size of a value counts.
#[derive(Clone, Copy)]
enum Unit {
    Characters,
    Entries,
}

impl Unit {
    fn count(self, count: i64) -> String {
        let noun = match (self, count) {
            (Unit::Characters, 1) => "character",
            (Unit::Characters, _) => "characters",
            (Unit::Entries, 1) => "entry",
            (Unit::Entries, _) => "entries",
        };
        format!("{count} {noun}")
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

    /// Keywords that `check` implements.
    const IMPLEMENTED: [&str; 16] = [
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
    /// Keywords that reject nothing: documentation, defaults, and formats of integers with an explicit range.
    const IGNORED: [&str; 4] = ["default", "title", "description", "format"];

    /// Keywords in the schema of the spec that `check` does not implement. The status is not validated, because the API server
    /// drops it from objects that users write.
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
                known if IMPLEMENTED.contains(&known) || IGNORED.contains(&known) => {}
                _ => found.push(here),
            }
        }
        found
    }

    fn errors(manifest: &Value) -> Vec<String> {
        check(&fivespot_api::crd(), manifest).iter().map(ToString::to_string).collect()
    }

    fn valid() -> Value {
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
    fn all_keywords_of_the_spec_are_implemented() {
        let version = fivespot_api::crd().spec.versions.remove(0);
        let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
        assert_eq!(unknown_keywords(&schema["properties"]["spec"], "spec"), Vec::<String>::new());
    }

    #[test]
    fn provider_specs_may_contain_anything() {
        assert_eq!(errors(&valid()), Vec::<String>::new());
    }

    #[test]
    fn errors_name_the_field() {
        let cases = [
            ("/spec/priority", json!("high"), "spec.priority must be an integer, not a string"),
            ("/spec/priority", json!(256), "spec.priority must be at most 255"),
            ("/spec/priority", json!(-1), "spec.priority must be at least 0"),
            ("/spec/killSwitch", json!("yes"), "spec.killSwitch must be a boolean, not a string"),
            ("/spec/killIfCommands", json!([""]), "spec.killIfCommands[0] must have at least 1 character, has 0"),
            (
                "/spec/killIfCommands",
                json!(vec!["a"; 101]),
                "spec.killIfCommands must have at most 100 entries, has 101",
            ),
            (
                "/spec/nodeTaints",
                json!([{ "key": "a", "effect": "Maybe" }]),
                "spec.nodeTaints[0].effect must be one of NoSchedule, PreferNoSchedule, NoExecute",
            ),
            ("/spec/nodeTaints", json!([{ "key": "a" }]), "spec.nodeTaints[0].effect is required"),
            (
                "/spec/schedule/dayOfWeek",
                json!([]),
                "unknown field `spec.schedule.dayOfWeek`; did you mean `daysOfWeek`?",
            ),
            ("/spec/schedule/weekdays", json!([]), "unknown field `spec.schedule.weekdays`"),
            ("/Spec", json!({}), "unknown field `Spec`; did you mean `spec`?"),
            ("/metdata", json!({}), "unknown field `metdata`; did you mean `metadata`?"),
            ("/spec/nodeTaints", json!([null]), "spec.nodeTaints[0] must be an object, not null"),
        ];
        for (pointer, value, expected) in cases {
            let mut manifest = valid();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            manifest.pointer_mut(parent).unwrap()[field] = value;
            assert_eq!(errors(&manifest), [expected], "{pointer}");
        }
    }

    #[test]
    fn normalize_drops_null_of_known_fields() {
        let mut manifest = valid();
        manifest["spec"]["killIfCommands"] = Value::Null;
        manifest["spec"]["clusterName"] = Value::Null;
        manifest["spec"]["bootstrapSpec"]["spec"]["kept"] = Value::Null;
        manifest["spec"]["priority"] = json!(50.0);
        normalize(&fivespot_api::crd(), &mut manifest);
        assert_eq!(manifest["spec"]["priority"], json!(50));
        assert_eq!(manifest["spec"].get("killIfCommands"), None);
        assert_eq!(manifest["spec"]["bootstrapSpec"]["spec"].get("kept"), Some(&Value::Null));
        assert_eq!(errors(&manifest), ["spec.clusterName is required"]);
    }
}
