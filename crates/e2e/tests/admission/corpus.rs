//! The policy accepts and rejects the corpus exactly as the offline validator does.

use fivespot_validation::validate::EnforcedBy;

use crate::env::{env, example, examples, offline_violations};
use crate::requests::{Response, create, dry_run, dry_run_spec};

/// Asserts that the policy reports the rules that the offline validator reports, and denies with the first of them.
#[track_caller]
fn assert_same_violations(response: &Response, offline: &[String], what: &str) {
    assert_ne!(offline, Vec::<String>::new(), "{what} is accepted offline");
    response.rejected_for(&offline[0], what);
    assert_eq!(response.warnings, offline, "{what}");
}

#[tokio::test]
async fn invalid_create_is_rejected_as_offline() {
    let test = env().await.testbed.namespace("bad examples").await;
    for example in examples("invalid/policy") {
        let offline = offline_violations(&test, &example.manifest, EnforcedBy::Policy);
        assert_same_violations(&create(&test, &example.manifest).await, &offline, &example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn invalid_edit_is_rejected_as_offline() {
    let test = env().await.testbed.namespace("bad edits").await;
    let valid = create(&test, &example("valid", "every-field").manifest).await.accepted("every-field");
    for example in examples("invalid/policy") {
        let offline = offline_violations(&test, &example.manifest, EnforcedBy::Policy);
        let response = dry_run_spec(&test, &valid, &example.manifest["spec"]).await;
        assert_same_violations(&response, &offline, &example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn valid_create_and_edit_are_accepted() {
    let test = env().await.testbed.namespace("good examples").await;
    let edited = create(&test, &example("valid", "minimal").manifest).await.accepted("minimal");
    for example in examples("valid").into_iter().filter(|it| it.name != "minimal") {
        let created = create(&test, &example.manifest).await;
        assert_eq!(created.warnings, Vec::<String>::new(), "{}", example.name);
        created.accepted(&example.name);
        dry_run_spec(&test, &edited, &example.manifest["spec"]).await.accepted(&example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn inline_object_may_name_its_own_namespace() {
    let test = env().await.testbed.namespace("own namespace").await;
    let mut manifest = example("valid", "minimal").manifest;
    for object in ["bootstrapSpec", "infrastructureSpec"] {
        manifest["spec"][object]["namespace"] = test.name.as_str().into();
    }
    create(&test, &manifest).await.accepted("its own namespace");
    test.close().await;
}

/// CEL cannot check these; the controller reports them in the status.
#[tokio::test]
async fn specs_that_only_the_controller_rejects_are_accepted() {
    let test = env().await.testbed.namespace("controller examples").await;
    for example in examples("invalid/controller") {
        let response = create(&test, &example.manifest).await;
        assert_eq!(response.warnings, Vec::<String>::new(), "{}", example.name);
        response.accepted(&example.name);
        let offline = offline_violations(&test, &example.manifest, EnforcedBy::Controller);
        assert_ne!(offline, Vec::<String>::new(), "{}", example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn schema_rejects_before_the_policy() {
    let test = env().await.testbed.namespace("schema examples").await;
    for example in examples("invalid/schema") {
        let response = dry_run(&test, &example.manifest).await;
        let rejection = response.rejected(&example.name);
        let field = example.text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
        assert_eq!(rejection.rule(), None, "{}: {}", example.name, rejection.message);
        assert!(rejection.message.contains(field), "{}: {}", example.name, rejection.message);
    }
    test.close().await;
}
