//! Manifests on disk: the ScheduledMachines in a file, whatever else is in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use fivespot_api::ScheduleSpec;
use fivespot_cli_support::{Failure, tell};
use fivespot_validation::document::{self, DocumentError};
use fivespot_validation::schema;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// The largest file that is read: far more than a fleet of ten thousand machines takes.
const LARGEST: u64 = 256 * 1024 * 1024;

/// A ScheduledMachine of a file, as far as its schedule goes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) schedule: ScheduleSpec,
}

/// Which ScheduledMachine of a file is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) name: Option<&'a str>,
    /// An object that names no namespace would be put into this one.
    pub(crate) namespace: Option<&'a str>,
}

impl Wanted<'_> {
    fn fits(&self, manifest: &Value) -> bool {
        let namespace = namespace_of(manifest);
        self.name.is_none_or(|it| it == name_of(manifest))
            && self.namespace.is_none_or(|it| namespace.is_none_or(|own| own == it))
    }
}

/// Reads the one ScheduledMachine of a file that is meant.
///
/// A mistake in its schedule is an error. One elsewhere in it is a warning: the windows can be told all the same.
pub(crate) fn read(path: &Path, wanted: Wanted<'_>) -> Result<Found, Failure> {
    let file = told(path);
    let bad = |reason: String| Failure::bad_input(format!("{file}: {reason}"));
    let objects = objects(path)?;
    let machines: Vec<&Value> = objects.iter().filter(|it| document::is_ours(it)).collect();
    if machines.is_empty() {
        return Err(bad(none_is_ours(&objects)));
    }
    let fitting: Vec<&Value> = machines.iter().copied().filter(|it| wanted.fits(it)).collect();
    let mut chosen = match fitting.as_slice() {
        [only] => (*only).clone(),
        [] => return Err(bad(format!("holds no such ScheduledMachine, only: {}", list(&machines)))),
        [_, _, ..] => {
            let how = "name the one you mean, with -n if its name is not enough";
            return Err(bad(format!("holds {} ScheduledMachines, {how}: {}", fitting.len(), list(&fitting))));
        }
    };

    let crd = fivespot_api::crd();
    schema::normalize(&crd, &mut chosen);
    if let (Some(namespace), None) = (wanted.namespace, namespace_of(&chosen)) {
        chosen["metadata"]["namespace"] = namespace.into();
    }
    let (ours, others) = faults(&crd, &chosen);
    if !ours.is_empty() {
        return Err(bad(ours.join("; ")));
    }
    for warning in others {
        tell(&format!("warning: {file}: {warning}"));
    }
    let schedule = serde_json::from_value(chosen["spec"]["schedule"].clone())
        .map_err(|error| bad(format!("spec.schedule: {error}")))?;
    Ok(Found { name: name_of(&chosen), schedule })
}

/// All that a file calls ScheduledMachines, of whatever group.
pub(crate) fn machines(path: &Path) -> Result<Vec<Value>, Failure> {
    let mut objects = objects(path)?;
    objects.retain(|it| it["kind"] == "ScheduledMachine");
    if objects.is_empty() {
        return Err(Failure::bad_input(format!("{}: {}", told(path), none_is_ours(&objects))));
    }
    Ok(objects)
}

/// A file as a person is told of it.
pub(crate) fn told(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn objects(path: &Path) -> Result<Vec<Value>, Failure> {
    let bad = |reason: String| Failure::bad_input(format!("{}: {reason}", told(path)));
    let text = text(path).map_err(|error| bad(error.to_string()))?;
    Ok(documents(&text).map_err(bad)?.into_iter().flat_map(items).collect())
}

fn text(path: &Path) -> io::Result<String> {
    let source: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let mut text = String::new();
    let read = source.take(LARGEST + 1).read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|it| it > LARGEST) {
        return Err(io::Error::other("is larger than 256 MiB: that is no manifest"));
    }
    Ok(text)
}

/// The documents of a file. What is JSON is read as JSON, which is much quicker; anything else as YAML.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    if let Ok(document) = serde_json::from_str(text) {
        return Ok(vec![document]);
    }
    // The size has been looked at, and aliases have limits of their own; a fleet has many documents and nodes.
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| format!("is not YAML: {}", without_advice(&error.without_snippet().to_string())))
}

/// The parser's words without its advice to programmers.
fn without_advice(message: &str) -> String {
    let advice = ", set DuplicateKeyPolicy in Options if acceptable";
    message.replace(advice, "")
}

/// The objects of a document: itself, or those of a list (`List`, `ScheduledMachineList`).
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut list) if list.get("kind").and_then(Value::as_str).is_some_and(|it| it.ends_with("List")) => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                Some(_) | None => Vec::new(),
            }
        }
        other => vec![other],
    }
}

/// Says what is there instead, if it comes close.
fn none_is_ours(objects: &[Value]) -> String {
    let none = "holds no ScheduledMachine of 5spot.finos.org/v1alpha1".to_owned();
    match objects.iter().find(|it| it["kind"] == "ScheduledMachine") {
        Some(other) => format!("{none}, but one of {}: change its apiVersion", other["apiVersion"]),
        None => none,
    }
}

fn list(machines: &[&Value]) -> String {
    let told = |it: &&Value| match namespace_of(it) {
        Some(namespace) => format!("{namespace}/{}", name_of(it)),
        None => name_of(it),
    };
    machines.iter().map(told).collect::<Vec<_>>().join(", ")
}

pub(crate) fn namespace_of(manifest: &Value) -> Option<&str> {
    manifest["metadata"]["namespace"].as_str().filter(|it| !it.is_empty())
}

pub(crate) fn name_of(manifest: &Value) -> String {
    manifest["metadata"]["name"].as_str().unwrap_or("(no name)").to_owned()
}

/// What is wrong with the schedule, and what is wrong elsewhere.
fn faults(crd: &CustomResourceDefinition, manifest: &Value) -> (Vec<String>, Vec<String>) {
    let errors = document::judge(crd, manifest).err().unwrap_or_default();
    let about_schedule =
        |error: &DocumentError| error.field() == "spec" || error.field().strip_prefix("spec.schedule").is_some();
    let (ours, others): (Vec<_>, Vec<_>) = errors.into_iter().partition(about_schedule);
    let told = |errors: Vec<DocumentError>| errors.iter().map(ToString::to_string).collect();
    (told(ours), told(others))
}
