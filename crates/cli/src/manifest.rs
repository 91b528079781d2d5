//! Manifests on disk: the ScheduledMachines in a file, whatever else is in it.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use fivespot_api::ScheduleSpec;
use fivespot_core::document::{self, DocumentError};
use fivespot_core::schema;
use fivespot_entry::Failure;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// A ScheduledMachine of a file, as far as its schedule goes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) schedule: ScheduleSpec,
}

/// Reads the one ScheduledMachine of a file, or the one called `name`.
///
/// A mistake in its schedule is an error. One elsewhere in it is a warning: the windows can be told all the same.
pub(crate) fn read(path: &Path, name: Option<&str>) -> Result<Found, Failure> {
    let file = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let bad = |reason: String| Failure::bad_input(format!("{file}: {reason}"));
    let text = text(path).map_err(|error| bad(error.to_string()))?;
    let documents = serde_saphyr::from_multiple::<Value>(&text)
        .map_err(|error| bad(format!("is not YAML: {}", error.without_snippet())))?;

    let crd = fivespot_api::crd();
    let mut machines: Vec<Value> = documents.into_iter().flat_map(items).filter(document::is_ours).collect();
    for machine in &mut machines {
        schema::drop_nulls(&crd, machine);
    }
    let names = || machines.iter().map(name_of).collect::<Vec<_>>().join(", ");
    let chosen = match (name, machines.as_slice()) {
        (_, []) => return Err(bad("holds no ScheduledMachine of 5spot.finos.org/v1alpha1".to_owned())),
        (None, [only]) => only,
        (None, [_, _, ..]) => {
            return Err(bad(format!("holds {} ScheduledMachines, name the one you mean: {}", machines.len(), names())));
        }
        (Some(name), all) => all
            .iter()
            .find(|it| name_of(it) == name)
            .ok_or_else(|| bad(format!("holds no ScheduledMachine called {name:?}, only: {}", names())))?,
    };

    let (ours, others) = faults(&crd, chosen);
    if !ours.is_empty() {
        return Err(bad(ours.join("; ")));
    }
    for warning in others {
        eprintln!("warning: {file}: {warning}");
    }
    let schedule = serde_json::from_value(chosen["spec"]["schedule"].clone())
        .map_err(|error| bad(format!("spec.schedule: {error}")))?;
    Ok(Found { name: name_of(chosen), schedule })
}

fn text(path: &Path) -> io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        Ok(text)
    } else {
        fs::read_to_string(path)
    }
}

/// The objects of a document: itself, or what a `List` of kubectl's holds.
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut list) if list.get("kind").is_some_and(|it| it == "List") => match list.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        other => vec![other],
    }
}

fn name_of(manifest: &Value) -> String {
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
