//! The API server checks the types of a policy's validations against the CRD, but not those of its variables and
//! conditions: here they are validations too.

use fivespot_testbed::wait::eventually;
use fivespot_validation::admission;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, Validation};
use kube::Api;
use kube::api::PostParams;

use crate::installed::{SOON, installed};

/// What the type check says of a policy, once it has been through.
async fn warnings(policies: &Api<ValidatingAdmissionPolicy>, name: &str) -> Vec<String> {
    let checked = eventually("the types are checked", SOON, async || {
        let status = policies.get(name).await.ok()?.status?;
        status.observed_generation.and(status.type_checking)
    });
    checked.await.expression_warnings.into_iter().flatten().map(|it| it.warning).collect()
}

/// The policy with every expression that it has as a validation; nobody binds it.
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
async fn every_expression_fits_the_types_of_the_crd() {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(installed().await.testbed.client());
    assert_eq!(warnings(&policies, admission::POLICY).await, Vec::<String>::new());
    policies.create(&PostParams::default(), &all_validations("all-validations")).await.unwrap();
    assert_eq!(warnings(&policies, "all-validations").await, Vec::<String>::new());
}

/// Or the test above would prove nothing.
#[tokio::test]
async fn a_misspelt_field_would_be_found() {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(installed().await.testbed.client());
    let mut misspelt = all_validations("misspelt");
    for validation in misspelt.spec.iter_mut().flat_map(|it| it.validations.iter_mut().flatten()) {
        validation.expression = validation.expression.replace("?daysOfWeek.", "?daysOfweek.");
    }
    policies.create(&PostParams::default(), &misspelt).await.unwrap();
    let warnings = warnings(&policies, "misspelt").await;
    assert!(warnings.iter().any(|it| it.contains("daysOfweek")), "{warnings:?}");
}
