//! Reads ScheduledMachines from files with any number of manifests.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use fivespot_api::ScheduleSpec;
use fivespot_cli_support::{Failure, write_stderr};
use fivespot_validation::manifest::{self, ManifestError};
use fivespot_validation::schema;
use serde_json::Value;
use serde_saphyr::Budget;

/// Larger files are rejected. A fleet of ten thousand machines is far smaller.
const MAX_SIZE: u64 = 256 * 1024 * 1024;

/// How much the aliases of a file may add: a file of some megabytes could expand to terabytes.
const MAX_EXPANDED_BYTES: usize = 64 * 1024 * 1024;
const MAX_EXPANDED_NODES: usize = 1_000_000;

/// The parser is recursive. It limits blocks and flows to 255 levels each, which together are too many for its stack.
const MAX_DEPTH: usize = 254;

/// A ScheduledMachine in a file.
#[derive(Debug)]
pub(crate) struct FileMachine {
    pub(crate) name: String,
    pub(crate) schedule: ScheduleSpec,
}

/// Selects a ScheduledMachine in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selector<'a> {
    pub(crate) name: Option<&'a str>,
    /// Also selects objects without a namespace, which would be created in this one.
    pub(crate) namespace: Option<&'a str>,
}

impl Selector<'_> {
    fn matches(&self, manifest: &Value) -> bool {
        self.name.is_none_or(|name| name == name_of(manifest))
            && self.namespace.is_none_or(|selected| namespace_of(manifest).is_none_or(|own| own == selected))
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestFileError {
    #[error("{file}: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("{file}: is larger than 256 MiB")]
    TooLarge { file: String },
    #[error("{file}: is not valid YAML: {message}")]
    InvalidYaml { file: String, message: String },
    #[error("{file}: is nested more than {MAX_DEPTH} levels deep")]
    TooDeep { file: String },
    #[error("{file}: its aliases expand to more than 64 MiB or a million nodes: split the file, or use fewer aliases")]
    TooManyAliases { file: String },
    #[error("{file}: contains no ScheduledMachine of 5spot.finos.org/v1alpha1{}", other_version(.found.as_ref()))]
    NoScheduledMachine {
        file: String,
        /// The `apiVersion` of a ScheduledMachine of another group or version.
        found: Option<Value>,
    },
    #[error("{file}: contains no such ScheduledMachine, only: {}", .available.join(", "))]
    NotFound { file: String, available: Vec<String> },
    #[error("{file}: contains {} ScheduledMachines, select one by NAME and -n: {}", .candidates.len(), .candidates.join(", "))]
    Ambiguous { file: String, candidates: Vec<String> },
    #[error("{file}: {}", join(.errors))]
    InvalidSchedule { file: String, errors: Vec<ManifestError> },
    #[error("{file}: spec.schedule: {source}")]
    MalformedSchedule { file: String, source: serde_json::Error },
}

impl From<ManifestFileError> for Failure {
    fn from(error: ManifestFileError) -> Self {
        Failure::BadInput(error.to_string())
    }
}

fn other_version(found: Option<&Value>) -> String {
    found.map(|found| format!(", but one of {found}: change its apiVersion")).unwrap_or_default()
}

fn join(errors: &[ManifestError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Reads the selected ScheduledMachine.
///
/// Errors in the schedule fail. Errors elsewhere are printed as warnings, because the schedule can still be evaluated.
pub(crate) fn read(path: &Path, selector: Selector<'_>) -> Result<FileMachine, ManifestFileError> {
    let file = display_name(path);
    let objects = objects(path)?;
    let machines: Vec<&Value> = objects.iter().filter(|it| manifest::is_scheduled_machine(it)).collect();
    if machines.is_empty() {
        return Err(no_scheduled_machine(file, &objects));
    }
    let selected: Vec<&Value> = machines.iter().copied().filter(|it| selector.matches(it)).collect();
    let mut machine = match selected.as_slice() {
        [only] => (*only).clone(),
        [] => return Err(ManifestFileError::NotFound { file, available: full_names(&machines) }),
        [_, _, ..] => return Err(ManifestFileError::Ambiguous { file, candidates: full_names(&selected) }),
    };

    let crd = fivespot_api::crd();
    schema::normalize(&crd, &mut machine);
    if let (Some(namespace), None) = (selector.namespace, namespace_of(&machine)) {
        machine["metadata"]["namespace"] = namespace.into();
    }
    let errors = manifest::validate(&crd, &machine).err().unwrap_or_default();
    let concerns_schedule =
        |error: &ManifestError| error.field() == "spec" || error.field().starts_with("spec.schedule");
    let (errors, warnings): (Vec<_>, Vec<_>) = errors.into_iter().partition(concerns_schedule);
    if !errors.is_empty() {
        return Err(ManifestFileError::InvalidSchedule { file, errors });
    }
    for warning in warnings {
        write_stderr(&format!("warning: {file}: {warning}"));
    }
    match serde_json::from_value(machine["spec"]["schedule"].clone()) {
        Ok(schedule) => Ok(FileMachine { name: name_of(&machine), schedule }),
        Err(source) => Err(ManifestFileError::MalformedSchedule { file, source }),
    }
}

/// Reads all objects of kind ScheduledMachine, of any API group.
pub(crate) fn read_all(path: &Path) -> Result<Vec<Value>, ManifestFileError> {
    let mut objects = objects(path)?;
    objects.retain(|it| it["kind"] == "ScheduledMachine");
    if objects.is_empty() { Err(no_scheduled_machine(display_name(path), &objects)) } else { Ok(objects) }
}

/// The path of a file for messages.
pub(crate) fn display_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn objects(path: &Path) -> Result<Vec<Value>, ManifestFileError> {
    let file = display_name(path);
    let mut text = String::new();
    let size = open(path)
        .and_then(|source| source.take(MAX_SIZE + 1).read_to_string(&mut text))
        .map_err(|source| ManifestFileError::Unreadable { file: file.clone(), source })?;
    if u64::try_from(size).is_ok_and(|size| size > MAX_SIZE) {
        return Err(ManifestFileError::TooLarge { file });
    }
    Ok(documents(file, &text)?.into_iter().flat_map(items).collect())
}

fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") { Ok(Box::new(io::stdin())) } else { Ok(Box::new(File::open(path)?)) }
}

/// Parses the documents of a file. Tries JSON first, which is much faster.
fn documents(file: String, text: &str) -> Result<Vec<Value>, ManifestFileError> {
    if let Ok(document) = serde_json::from_str(text) {
        return Ok(vec![document]);
    }
    let options = serde_saphyr::options! { budget: Some(budget(text.len())) };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let message = error.without_snippet().to_string();
        if is_expansion_limit(&message) {
            return ManifestFileError::TooManyAliases { file };
        }
        if message.starts_with("budget breached: Depth") {
            return ManifestFileError::TooDeep { file };
        }
        // The parser advises programmers how to accept duplicate keys.
        let message = message.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        ManifestFileError::InvalidYaml { file, message }
    })
}

/// Limits only what aliases add: a fleet has many documents and nodes, and the size of the file is limited.
fn budget(size: usize) -> Budget {
    let mut budget = Budget::default();
    budget.max_depth = MAX_DEPTH;
    budget.max_documents = usize::MAX;
    budget.max_events = usize::MAX;
    budget.max_aliases = usize::MAX;
    budget.max_anchors = usize::MAX;
    budget.max_merge_keys = usize::MAX;
    budget.enforce_alias_anchor_ratio = false;
    // Nothing that is written out has more nodes than twice its bytes: `{a}` has a key and a value.
    budget.max_nodes = (2 * size).saturating_add(MAX_EXPANDED_NODES);
    budget.max_recorded_anchor_events = budget.max_nodes;
    budget.max_total_scalar_bytes = size.saturating_add(MAX_EXPANDED_BYTES);
    budget.max_recorded_anchor_bytes = budget.max_total_scalar_bytes;
    budget
}

/// The parser keeps only the text of an error in an alias.
fn is_expansion_limit(message: &str) -> bool {
    ["budget breached: ScalarBytes", "budget breached: Nodes", "budget breached: RecordedAnchor", "alias replay limit"]
        .iter()
        .any(|prefix| message.starts_with(prefix))
}

/// The objects of a document: itself, or the items of a list (`List`, `ScheduledMachineList`).
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

fn no_scheduled_machine(file: String, objects: &[Value]) -> ManifestFileError {
    let found = objects.iter().find(|it| it["kind"] == "ScheduledMachine").map(|it| it["apiVersion"].clone());
    ManifestFileError::NoScheduledMachine { file, found }
}

fn full_names(machines: &[&Value]) -> Vec<String> {
    let full_name = |it: &&Value| match namespace_of(it) {
        Some(namespace) => format!("{namespace}/{}", name_of(it)),
        None => name_of(it),
    };
    machines.iter().map(full_name).collect()
}

pub(crate) fn namespace_of(manifest: &Value) -> Option<&str> {
    manifest["metadata"]["namespace"].as_str().filter(|it| !it.is_empty())
}

pub(crate) fn name_of(manifest: &Value) -> String {
    manifest["metadata"]["name"].as_str().unwrap_or("(no name)").to_owned()
}
