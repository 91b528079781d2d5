//! Renders manifests with kubectl and Helm.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use fivespot_e2e::repo_root;
use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};
use serde_json::Value;

/// Objects by `<kind> <namespace>/<name>`.
pub(crate) type Objects = BTreeMap<String, Value>;

pub(crate) fn artifacts() -> Artifacts {
    let mut printer = ProgressPrinter::new();
    Artifacts::ensure(&mut |step| printer.show(&step)).unwrap()
}

pub(crate) fn helm() -> Command {
    let mut printer = ProgressPrinter::new();
    Command::new(artifacts().helm(&mut |step| printer.show(&step)).unwrap())
}

pub(crate) fn chart() -> PathBuf {
    repo_root().join("charts/5-spot")
}

/// The output of `kubectl kustomize`.
pub(crate) fn kustomize(directory: &str) -> Objects {
    let output =
        Command::new(artifacts().kubernetes("kubectl")).arg("kustomize").arg(repo_root().join(directory)).output();
    objects(&succeeded(output.unwrap()))
}

/// The output of `helm template` in the namespace that `deploy/` uses.
pub(crate) fn helm_template(more: &[&str]) -> Objects {
    objects(&succeeded(helm_template_in("5spot-system", more)))
}

pub(crate) fn helm_template_in(namespace: &str, more: &[&str]) -> Output {
    let mut command = helm();
    command.args(["template", "a-release"]).arg(chart()).args(["--namespace", namespace]).args(more);
    command.output().unwrap()
}

/// Asserts success and returns the standard output.
pub(crate) fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts failure and returns the standard error.
pub(crate) fn failed(output: Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The objects of a multi-document YAML. Panics if one occurs twice.
pub(crate) fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|it| !it.is_null()) {
        let of = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{} {}/{}", of("/kind"), of("/metadata/namespace"), of("/metadata/name"));
        assert!(objects.insert(key.clone(), object).is_none(), "{key} occurs twice");
    }
    objects
}
