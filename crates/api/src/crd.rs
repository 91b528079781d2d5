//! The CustomResourceDefinition, derived from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::ScheduledMachine;

/// The CustomResourceDefinition of [`ScheduledMachine`], as it is shipped.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = ScheduledMachine::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut()) {
            drop_null(schema);
        }
    }
    crd
}

/// An object whose fields are nobody's business but the provider's.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// An `Option` comes out nullable, and a stored `null` is a third state that every rule of the admission policy would
/// have to think of. Where `null` is not allowed, the API server drops it: users may write it, and nobody has to read it.
fn drop_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
        drop_null(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_null(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_null(values);
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
    fn names_are_those_others_rely_on() {
        let crd = crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("scheduledmachines.5spot.finos.org"));
        assert_eq!(crd.spec.group, crate::keys::GROUP);
        assert_eq!(crd.spec.versions[0].name, crate::keys::VERSION);
        assert_eq!(crd.spec.names.short_names, Some(vec!["sm".to_owned()]));
        assert_eq!(crd.spec.names.categories, Some(vec!["cluster-api".to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
    }

    #[test]
    fn columns_are_in_the_order_of_the_contract() {
        let columns = crd().spec.versions.remove(0).additional_printer_columns.unwrap();
        let names: Vec<_> = columns.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["Phase", "In-Schedule", "Enabled", "Node", "Opens", "Closes", "Cluster", "Age"]);
    }

    #[test]
    fn no_field_stores_null() {
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

    /// An upper bound keeps the cost of a rule within its budget; all else would answer in the policy's place.
    const ALLOWED_ON_RULED_FIELDS: [&str; 7] =
        ["type", "description", "default", "properties", "items", "maxLength", "maxItems"];

    /// What the admission policy's rules speak of must reach the policy, or its Audit phase would see nothing.
    #[test]
    fn the_schema_leaves_the_rules_of_the_policy_alone() {
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
            let keywords = field.as_object().expect("a ruled field is in the schema").keys();
            let other: Vec<_> = keywords.filter(|it| !ALLOWED_ON_RULED_FIELDS.contains(&it.as_str())).collect();
            assert_eq!(other, Vec::<&String>::new(), "{field}");
            let bounded = ["maxLength", "maxItems"].iter().any(|it| field.get(it).is_some());
            assert!(bounded || field["type"] == "object", "{field}");
        }
    }
}
