//! The policy, installed as an operator installs it, on a control plane that has seen better days: every bad example of the
//! corpus was stored before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

use crate::requests::{Answer, create, dry_run};

pub(crate) const SOON: Duration = Duration::from_mins(1);

/// The testbed with the policy in force.
pub(crate) struct Installed {
    pub(crate) testbed: &'static Testbed,
    old: BTreeMap<Fate, String>,
}

/// What becomes of objects that are older than the policy: each test has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Edited,
    Worsened,
    Deleted,
}

impl Installed {
    /// A namespace that holds every file of `invalid/policy`, stored before there was a policy.
    pub(crate) fn old(&self, fate: Fate) -> TestNamespace {
        self.testbed.control_plane().existing_namespace(&self.old[&fate])
    }
}

/// Installs it once. Another binding of the same policy warns of every rule that is broken, where the one that is shipped
/// refuses because of the first.
pub(crate) async fn installed() -> &'static Installed {
    static INSTALLED: OnceCell<Installed> = OnceCell::const_new();
    INSTALLED.get_or_init(install).await
}

async fn install() -> Installed {
    let testbed = shared_with_crd().await;
    let mut old = BTreeMap::new();
    for fate in [Fate::Edited, Fate::Worsened, Fate::Deleted] {
        let test = testbed.namespace(&format!("old objects {fate:?}")).await;
        for example in examples("invalid/policy") {
            create(&test, &example.manifest).await.accepted(&example.name);
        }
        old.insert(fate, test.name.clone());
    }
    testbed.control_plane().apply(&root().join("deploy/admission")).await.unwrap();
    let mut telling = admission::binding();
    telling.metadata.name = Some("tells-of-every-rule".to_owned());
    telling.spec.validation_actions = vec!["Warn".to_owned()];
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(testbed.client());
    bindings.create(&PostParams::default(), &telling).await.unwrap();

    let probe = &example("invalid/policy", "cluster-name-empty").manifest;
    let default = testbed.control_plane().existing_namespace("default");
    eventually("the policy is in force", SOON, async || match dry_run(&default, probe).await {
        Answer { refusal: Some(_), warnings, .. } => !warnings.is_empty(),
        Answer { .. } => false,
    })
    .await;
    Installed { testbed, old }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A manifest of the corpus.
pub(crate) struct Example {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) manifest: Value,
}

/// All manifests of a folder.
pub(crate) fn examples(folder: &str) -> Vec<Example> {
    let mut paths: Vec<_> =
        fs::read_dir(root().join("testdata/specs").join(folder)).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder} is empty");
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let manifest = serde_saphyr::from_str(&text).unwrap();
        Example { name: path.file_stem().unwrap().to_string_lossy().into_owned(), text, manifest }
    };
    paths.iter().map(read).collect()
}

/// One manifest.
pub(crate) fn example(folder: &str, name: &str) -> Example {
    examples(folder).into_iter().find(|it| it.name == name).unwrap_or_else(|| panic!("{folder} has no {name}"))
}

/// The rules that a manifest breaks, as they are told offline: those of one judge, each once, in the order of the policy.
pub(crate) fn told_offline(test: &TestNamespace, manifest: &Value, enforced_by: EnforcedBy) -> Vec<String> {
    let mut manifest = manifest.clone();
    manifest["metadata"]["namespace"] = test.name.as_str().into();
    let errors = manifest::validate(&fivespot_api::crd(), &manifest).err().unwrap_or_default();
    let mut rules: Vec<String> = Vec::new();
    for error in errors {
        let ManifestError::Rule(error) = error else { panic!("the schema refuses it: {error}") };
        if error.enforced_by == enforced_by && !rules.contains(&error.rule) {
            rules.push(error.rule);
        }
    }
    let order = admission::rules();
    rules.sort_by_key(|rule| order.iter().position(|it| it.message == *rule));
    rules
}
