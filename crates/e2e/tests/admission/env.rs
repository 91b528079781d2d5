//! A control plane with the policy installed. Every invalid example of the corpus was stored before the policy.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fivespot_e2e::{TIMEOUT, repo_root};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{TestNamespace, Testbed, shared_with_crd};
use fivespot_validation::admission;
use fivespot_validation::manifest::{self, ManifestError};
use fivespot_validation::validate::EnforcedBy;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::requests::{create, dry_run};

/// The testbed with the policy in force.
pub(crate) struct Env {
    pub(crate) testbed: &'static Testbed,
    old_objects: BTreeMap<Purpose, String>,
}

/// What a test does with its objects that are older than the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Edit,
    DryRun,
    Delete,
}

impl Env {
    /// A namespace that contains every file of `invalid/policy`, stored before the policy was installed.
    pub(crate) fn old_objects(&self, purpose: Purpose) -> TestNamespace {
        self.testbed.control_plane().existing_namespace(&self.old_objects[&purpose])
    }
}

/// Installs the policy once. The shipped binding denies with the first violated rule; a second binding warns of all of
/// them.
pub(crate) async fn env() -> &'static Env {
    static ENV: OnceCell<Env> = OnceCell::const_new();
    ENV.get_or_init(install).await
}

async fn install() -> Env {
    let testbed = shared_with_crd().await;
    let mut old_objects = BTreeMap::new();
    for purpose in [Purpose::Edit, Purpose::DryRun, Purpose::Delete] {
        let test = testbed.namespace(&format!("old objects {purpose:?}")).await;
        for example in examples("invalid/policy") {
            create(&test, &example.manifest).await.accepted(&example.name);
        }
        old_objects.insert(purpose, test.name.clone());
    }
    testbed.control_plane().apply(&repo_root().join("deploy/admission")).await.unwrap();
    let mut warning = admission::binding();
    warning.metadata.name = Some("warns-of-every-rule".to_owned());
    warning.spec.validation_actions = vec!["Warn".to_owned()];
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(testbed.client());
    bindings.create(&PostParams::default(), &warning).await.unwrap();

    let probe = &example("invalid/policy", "cluster-name-empty").manifest;
    let default = testbed.control_plane().existing_namespace("default");
    eventually("the policy is in force", TIMEOUT, async || {
        let response = dry_run(&default, probe).await;
        response.rejection.is_some() && !response.warnings.is_empty()
    })
    .await;
    Env { testbed, old_objects }
}

/// A manifest of the corpus.
pub(crate) struct Example {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) manifest: Value,
}

/// All manifests of a folder of the corpus.
pub(crate) fn examples(folder: &str) -> Vec<Example> {
    let mut paths: Vec<_> =
        fs::read_dir(repo_root().join("testdata/specs").join(folder)).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder} is empty");
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let manifest = serde_saphyr::from_str(&text).unwrap();
        Example { name: path.file_stem().unwrap().to_string_lossy().into_owned(), text, manifest }
    };
    paths.iter().map(read).collect()
}

pub(crate) fn example(folder: &str, name: &str) -> Example {
    examples(folder).into_iter().find(|it| it.name == name).unwrap_or_else(|| panic!("{folder} has no {name}"))
}

/// The distinct rules that a manifest violates according to the offline validator, enforced by one party, in the policy's order.
pub(crate) fn offline_violations(test: &TestNamespace, manifest: &Value, enforced_by: EnforcedBy) -> Vec<String> {
    let mut manifest = manifest.clone();
    manifest["metadata"]["namespace"] = test.name.as_str().into();
    let errors = manifest::validate(&fivespot_api::crd(), &manifest).err().unwrap_or_default();
    let mut rules: Vec<String> = Vec::new();
    for error in errors {
        let ManifestError::Rule(error) = error else { panic!("the schema rejects it: {error}") };
        if error.enforced_by == enforced_by && !rules.contains(&error.rule) {
            rules.push(error.rule);
        }
    }
    let order = admission::rules();
    rules.sort_by_key(|rule| order.iter().position(|it| it.message == *rule));
    rules
}
