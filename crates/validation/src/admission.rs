//! The admission policy: what the API server asks of a ScheduledMachine before it stores it.
//!
//! Its messages are the words of [`rules`](crate::validate::rules), which the offline validator uses too, and its order is
//! the validator's order, so the first thing that the API server complains of is the first thing that is told offline.
//! `cargo xtask gen` writes it into `deploy/admission`.
//!
//! A rule is asked on an update only if one of the fields that it reads has changed: an object that is older than the
//! policy can still be edited elsewhere, be disabled, lose its finalizer and go.

mod field;
pub(crate) mod form;
mod rule;
mod table;

use fivespot_api::keys;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use field::Field;
pub use rule::Rule;
pub use table::rules;

/// Name of the policy.
pub const POLICY: &str = "scheduledmachine-validation";
/// Name of the binding that puts it into force.
pub const BINDING: &str = "scheduledmachine-validation-binding";

/// The policy, as it is shipped.
pub fn policy() -> ValidatingAdmissionPolicy {
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![NamedRuleWithOperations {
                api_groups: Some(vec![keys::GROUP.to_owned()]),
                api_versions: Some(vec![keys::VERSION.to_owned()]),
                operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                // Without a slash, so the status is not judged.
                resources: Some(vec!["scheduledmachines".to_owned()]),
                ..NamedRuleWithOperations::default()
            }]),
            ..MatchResources::default()
        }),
        match_conditions: Some(vec![MatchCondition {
            name: "not-being-deleted".to_owned(),
            expression: "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp)".to_owned(),
        }]),
        variables: Some(Field::ALL.iter().flat_map(variables).collect()),
        validations: Some(rules().iter().map(validation).collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    ValidatingAdmissionPolicy { metadata: named(POLICY), spec: Some(spec), status: None }
}

/// The binding, as it is shipped: every namespace, and what breaks a rule is refused.
pub fn binding() -> ValidatingAdmissionPolicyBinding {
    let spec = ValidatingAdmissionPolicyBindingSpec {
        policy_name: POLICY.to_owned(),
        validation_actions: vec!["Deny".to_owned()],
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    ValidatingAdmissionPolicyBinding { metadata: named(BINDING), spec }
}

/// What a field holds, and whether an update leaves it as it was.
fn variables(field: &Field) -> [Variable; 2] {
    [
        Variable { name: field.name.to_owned(), expression: field.value.to_owned() },
        Variable { name: field.kept(), expression: field.is_kept() },
    ]
}

fn validation(rule: &Rule) -> Validation {
    Validation { expression: rule.expression(), message: Some(rule.message.to_owned()), ..Validation::default() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
