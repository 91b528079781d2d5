//! The API server type-checks the validations of a policy against the CRD, but not its variables and match conditions. These
//! tests turn them into validations.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::wait::eventually;
use fivespot_validation::admission;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, Validation};
use kube::Api;
use kube::api::PostParams;

use crate::env::env;

/// The warnings of the type check, once it is complete.
async fn warnings(policies: &Api<ValidatingAdmissionPolicy>, name: &str) -> Vec<String> {
    let checked = eventually("the types are checked", TIMEOUT, async || {
        let status = policies.get(name).await.ok()?.status?;
        status.observed_generation.and(status.type_checking)
    });
    checked.await.expression_warnings.into_iter().flatten().map(|it| it.warning).collect()
}

/// The policy with all its expressions as validations. It has no binding.
fn all_validations(name: &str) -> ValidatingAdmissionPolicy {
    let mut policy = admission::policy();
    policy.metadata.name = Some(name.to_owned());
    let spec = policy.spec.as_mut().unwrap();
    let variables = spec.variables.iter().flatten().map(|it| it.expression.clone());
    let conditions = spec.match_conditions.iter().flatten().map(|it| it.expression.clone());
    let more: Vec<_> = variables
        .chain(conditions)
        .map(|it| Validation { expression: format!("[{it}].size() == 1"), ..Validation::default() })
        .collect();
    spec.validations.as_mut().unwrap().extend(more);
    policy
}

#[tokio::test]
async fn every_expression_type_checks_against_the_crd() {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(env().await.testbed.client());
    assert_eq!(warnings(&policies, admission::POLICY).await, Vec::<String>::new());
    policies.create(&PostParams::default(), &all_validations("all-validations")).await.unwrap();
    assert_eq!(warnings(&policies, "all-validations").await, Vec::<String>::new());
}

/// Verifies that the test above can detect an error.
#[tokio::test]
async fn misspelt_field_is_detected() {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(env().await.testbed.client());
    let mut misspelt = all_validations("misspelt");
    for validation in misspelt.spec.iter_mut().flat_map(|it| it.validations.iter_mut().flatten()) {
        validation.expression = validation.expression.replace("?daysOfWeek.", "?daysOfweek.");
    }
    policies.create(&PostParams::default(), &misspelt).await.unwrap();
    let warnings = warnings(&policies, "misspelt").await;
    assert!(warnings.iter().any(|it| it.contains("daysOfweek")), "{warnings:?}");
}
