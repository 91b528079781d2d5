//! One corpus, one truth: who refuses what, and in which words.

use fivespot_validation::validate::EnforcedBy;

use crate::installed::{example, examples, installed, told_offline};
use crate::requests::{Answer, create, dry_run, dry_run_spec};

/// Asks that the policy breaks with the rules that are told offline, the first of them being why it was refused.
#[track_caller]
fn assert_refused_alike(answer: &Answer, told: &[String], what: &str) {
    assert_ne!(told, Vec::<String>::new(), "{what} is accepted offline");
    answer.refused_for(&told[0], what);
    assert_eq!(answer.warnings, told, "{what}");
}

#[tokio::test]
async fn every_bad_example_is_refused_on_creation_in_the_words_that_are_told_offline() {
    let test = installed().await.testbed.namespace("bad examples").await;
    for example in examples("invalid/policy") {
        let told = told_offline(&test, &example.manifest, EnforcedBy::Policy);
        assert_refused_alike(&create(&test, &example.manifest).await, &told, &example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn every_bad_example_is_refused_as_an_edit_of_a_good_object_in_the_same_words() {
    let test = installed().await.testbed.namespace("bad edits").await;
    let good = create(&test, &example("valid", "every-field").manifest).await.accepted("every-field");
    for example in examples("invalid/policy") {
        let told = told_offline(&test, &example.manifest, EnforcedBy::Policy);
        let answer = dry_run_spec(&test, &good, &example.manifest["spec"]).await;
        assert_refused_alike(&answer, &told, &example.name);
    }
    test.close().await;
}

#[tokio::test]
async fn every_good_example_is_accepted_as_an_object_and_as_an_edit() {
    let test = installed().await.testbed.namespace("good examples").await;
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
async fn an_inline_object_may_name_the_namespace_that_it_is_in() {
    let test = installed().await.testbed.namespace("own namespace").await;
    let mut manifest = example("valid", "minimal").manifest;
    for object in ["bootstrapSpec", "infrastructureSpec"] {
        manifest["spec"][object]["namespace"] = test.name.as_str().into();
    }
    create(&test, &manifest).await.accepted("its own namespace");
    test.close().await;
}

/// What no expression can know is stored, and the controller says what is wrong.
#[tokio::test]
async fn what_is_the_controllers_to_say_is_accepted() {
    let test = installed().await.testbed.namespace("controller examples").await;
    for example in examples("invalid/controller") {
        let answer = create(&test, &example.manifest).await;
        assert_eq!(answer.warnings, Vec::<String>::new(), "{}", example.name);
        answer.accepted(&example.name);
        assert_ne!(
            told_offline(&test, &example.manifest, EnforcedBy::Controller),
            Vec::<String>::new(),
            "{}",
            example.name
        );
    }
    test.close().await;
}

#[tokio::test]
async fn the_schema_answers_before_the_policy() {
    let test = installed().await.testbed.namespace("schema examples").await;
    for example in examples("invalid/schema") {
        let answer = dry_run(&test, &example.manifest).await;
        let refusal = answer.refused(&example.name);
        let field = example.text.lines().find_map(|it| it.strip_prefix("# field: ")).unwrap();
        assert_eq!(refusal.rule(), None, "{}: {}", example.name, refusal.message);
        assert!(refusal.message.contains(field), "{}: {}", example.name, refusal.message);
    }
    test.close().await;
}
