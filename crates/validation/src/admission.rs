//! The admission policy: the `ValidatingAdmissionPolicy` that rejects invalid ScheduledMachines in the API server.
//!
//! Messages and order of the rules are those of the validator ([`mod@crate::validate`]): the violation that the API server
//! reports is the first one that `kubectl 5spot lint` reports. `cargo xtask gen` writes the policy to `deploy/admission`.
//!
//! On an update, a rule is evaluated only if one of its fields changed. Objects that are older than the policy can therefore
//! still be disabled, deleted, and edited in other fields.
//!
//! To add a rule, add its message to [`rules`](crate::rules), its expression to `expressions.rs`, the same check to
//! [`mod@crate::validate`], and a manifest that violates it to `testdata/specs/invalid/policy`.

mod expressions;
mod rule;
mod spec_field;

use fivespot_api::keys;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use expressions::rules;
pub use rule::Rule;
pub use spec_field::SpecField;

/// Name of the policy.
pub const POLICY: &str = "scheduledmachine-validation";
/// Name of the binding.
pub const BINDING: &str = "scheduledmachine-validation-binding";

/// The policy, as shipped in `deploy/admission`.
pub fn policy() -> ValidatingAdmissionPolicy {
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![NamedRuleWithOperations {
                api_groups: Some(vec![keys::GROUP.to_owned()]),
                api_versions: Some(vec![keys::VERSION.to_owned()]),
                operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                // Not the status subresource, which the controller writes.
                resources: Some(vec!["scheduledmachines".to_owned()]),
                ..NamedRuleWithOperations::default()
            }]),
            ..MatchResources::default()
        }),
        match_conditions: Some(vec![MatchCondition {
            name: "not-being-deleted".to_owned(),
            expression: "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp)".to_owned(),
        }]),
        variables: Some(SpecField::ALL.iter().flat_map(variables).collect()),
        validations: Some(rules().iter().map(validation).collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    ValidatingAdmissionPolicy { metadata: named(POLICY), spec: Some(spec), status: None }
}

/// The binding, as shipped in `deploy/admission`: denies violations in all namespaces.
pub fn binding() -> ValidatingAdmissionPolicyBinding {
    let spec = ValidatingAdmissionPolicyBindingSpec {
        policy_name: POLICY.to_owned(),
        validation_actions: vec!["Deny".to_owned()],
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    ValidatingAdmissionPolicyBinding { metadata: named(BINDING), spec }
}

/// The value of a field, and whether an update leaves it unchanged.
fn variables(field: &SpecField) -> [Variable; 2] {
    [
        Variable { name: field.name.to_owned(), expression: field.value.to_owned() },
        Variable { name: field.unchanged_variable(), expression: field.unchanged_expression() },
    ]
}

fn validation(rule: &Rule) -> Validation {
    Validation { expression: rule.expression(), message: Some(rule.message.to_owned()), ..Validation::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
