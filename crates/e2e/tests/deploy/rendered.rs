//! Manifests as the tools of their users render them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};
use serde_json::Value;

/// Objects by kind, namespace and name.
pub(crate) type Objects = BTreeMap<String, Value>;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

pub(crate) fn artifacts() -> Artifacts {
    let mut printer = ProgressPrinter::new();
    Artifacts::ensure(&mut |step| printer.show(&step)).unwrap()
}

pub(crate) fn helm() -> Command {
    let mut printer = ProgressPrinter::new();
    Command::new(artifacts().helm(&mut |step| printer.show(&step)).unwrap())
}

pub(crate) fn chart() -> PathBuf {
    root().join("charts/5-spot")
}

/// What `kubectl kustomize` makes of a directory.
pub(crate) fn kustomize(directory: &str) -> Objects {
    let output = Command::new(artifacts().kubernetes("kubectl")).arg("kustomize").arg(root().join(directory)).output();
    objects(&succeeded(output.unwrap()))
}

/// What `helm template` makes of the chart, in the namespace that `deploy/` names.
pub(crate) fn helm_template(more: &[&str]) -> Objects {
    objects(&succeeded(helm_template_in("5spot-system", more)))
}

pub(crate) fn helm_template_in(namespace: &str, more: &[&str]) -> Output {
    let mut command = helm();
    command.args(["template", "a-release"]).arg(chart()).args(["--namespace", namespace]).args(more);
    command.output().unwrap()
}

pub(crate) fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The objects of a file with several documents. Each is there once.
pub(crate) fn objects(text: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|it| !it.is_null()) {
        let of = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{} {}/{}", of("/kind"), of("/metadata/namespace"), of("/metadata/name"));
        assert!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    objects
}
