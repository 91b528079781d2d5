//! The CustomResourceDefinition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::ScheduledMachine;

/// Returns the CustomResourceDefinition of [`ScheduledMachine`], as shipped in `deploy/crds`.
///
/// * No field is nullable: the API server drops an explicit `null` and applies the default, so stored objects contain none
///   outside of the providers' specs.
/// * Fields that the admission policy validates have upper bounds only; their format is left to the policy.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ScheduledMachine::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut()) {
            remove_nullable(schema);
        }
    }
    crd
}

/// Schema of a provider's spec: any fields, none of which are pruned.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Removes `nullable`, which the derive sets for every `Option`.
///
/// A stored `null` would be a third state that every rule of the admission policy has to handle. Where `null` is not allowed,
/// the API server drops it, so users may still write it.
fn remove_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
        remove_nullable(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_nullable(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        remove_nullable(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> serde_json::Value {
        let version = crd().spec.versions.remove(0);
        serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap()
    }

    #[test]
    fn names() {
        let crd = crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("scheduledmachines.5spot.finos.org"));
        assert_eq!(crd.spec.group, crate::keys::GROUP);
        assert_eq!(crd.spec.versions[0].name, crate::keys::VERSION);
        assert_eq!(crd.spec.names.short_names, Some(vec!["sm".to_owned()]));
        assert_eq!(crd.spec.names.categories, Some(vec!["cluster-api".to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
    }

    #[test]
    fn printer_columns() {
        let columns = crd().spec.versions.remove(0).additional_printer_columns.unwrap();
        let names: Vec<_> = columns.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["Phase", "In-Schedule", "Enabled", "Node", "Opens", "Closes", "Cluster", "Age"]);
    }

    #[test]
    fn no_field_is_nullable() {
        fn nullable(path: &str, value: &serde_json::Value, found: &mut Vec<String>) {
            if let serde_json::Value::Object(map) = value {
                if map.get("nullable") == Some(&true.into()) {
                    found.push(path.to_owned());
                }
                for (key, inner) in map {
                    nullable(&format!("{path}/{key}"), inner, found);
                }
            }
        }
        let mut found = Vec::new();
        nullable("", &schema(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// Upper bounds keep the cost of the policy's rules within the budget of the API server. Any other keyword would reject an
    /// object before the policy evaluates it.
    const ALLOWED_ON_RULED_FIELDS: [&str; 7] =
        ["type", "description", "default", "properties", "items", "maxLength", "maxItems"];

    /// If the schema rejected what the policy validates, the policy's `Audit` action would report nothing.
    #[test]
    fn schema_does_not_duplicate_policy_rules() {
        let schema = schema();
        let spec = &schema["properties"]["spec"]["properties"];
        let ruled = [
            &spec["clusterName"],
            &spec["gracefulShutdownTimeout"],
            &spec["nodeDrainTimeout"],
            &spec["schedule"],
            &spec["schedule"]["properties"]["cron"],
            &spec["schedule"]["properties"]["daysOfWeek"],
            &spec["schedule"]["properties"]["daysOfWeek"]["items"],
            &spec["schedule"]["properties"]["hoursOfDay"],
            &spec["schedule"]["properties"]["hoursOfDay"]["items"],
            &spec["bootstrapSpec"]["properties"]["apiVersion"],
            &spec["bootstrapSpec"]["properties"]["kind"],
            &spec["infrastructureSpec"]["properties"]["apiVersion"],
            &spec["infrastructureSpec"]["properties"]["kind"],
        ];
        for field in ruled {
            let keywords = field.as_object().expect("the field is in the schema").keys();
            let other: Vec<_> = keywords.filter(|it| !ALLOWED_ON_RULED_FIELDS.contains(&it.as_str())).collect();
            assert_eq!(other, Vec::<&String>::new(), "{field}");
            let bounded = ["maxLength", "maxItems"].iter().any(|it| field.get(it).is_some());
            assert!(bounded || field["type"] == "object", "{field}");
        }
    }
}
