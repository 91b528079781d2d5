//! `kubectl 5spot lint`: validates manifests offline.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fivespot_cli_support::{Failure, printable};
use fivespot_validation::manifest::{self, ManifestError};
use fivespot_validation::validate::EnforcedBy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde_json::Value;

use crate::manifest_file;
use crate::render::{Format, print, print_json};
use crate::target::check_namespace;

/// Validate manifests offline, with the same result as in a cluster
///
/// Validates every ScheduledMachine against the schema of the CRD, the admission policy and the checks of the controller, and
/// reports all errors with the component that enforces them. The API server rejects an object that violates the schema or the
/// policy. It stores an object that only the controller can reject, and the status of the object reports the error. Other
/// kinds of objects are ignored. Exits with code 1 if there is an error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot lint -f machine.yaml
  kustomize build . | kubectl 5spot lint -f -
  kubectl 5spot lint -f desks.yaml -f labs.yaml -n workstations -o json")]
pub(crate) struct Arguments {
    /// Read ScheduledMachines from this file ("-": standard input); can be repeated
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Namespace of objects that do not set one
    #[arg(short, long, default_value = manifest::DEFAULT_NAMESPACE)]
    namespace: String,

    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The result for one manifest.
#[derive(Debug, Serialize)]
struct LintResult {
    file: String,
    namespace: String,
    name: String,
    /// Whether an API server would store the object.
    accepted: bool,
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// `schema`, `policy` or `controller`.
    enforced_by: &'static str,
    field: String,
    message: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    check_namespace(Some(&arguments.namespace))?;
    let crd = fivespot_api::crd();
    let mut results = Vec::new();
    for path in &arguments.filename {
        let machines = manifest_file::read_all(path)?;
        results.extend(machines.into_iter().map(|machine| lint(&crd, path, machine, &arguments.namespace)));
    }
    match arguments.output {
        Format::Json => print_json(&results)?,
        Format::Text => print(|out| write_text(out, &results))?,
    }
    let (total, invalid) = (results.len(), results.iter().filter(|result| !result.findings.is_empty()).count());
    if invalid == 0 {
        return Ok(());
    }
    let (plural, verb) = (if total == 1 { "" } else { "s" }, if invalid == 1 { "is" } else { "are" });
    Err(Failure::Failed(format!("{invalid} of {total} ScheduledMachine{plural} {verb} invalid")))
}

fn lint(crd: &CustomResourceDefinition, path: &Path, mut machine: Value, namespace: &str) -> LintResult {
    if manifest_file::namespace_of(&machine).is_none() && machine["metadata"].is_object() {
        machine["metadata"]["namespace"] = namespace.into();
    }
    let errors = manifest::validate(crd, &machine).err().unwrap_or_default();
    let findings: Vec<Finding> = errors.iter().map(finding).collect();
    LintResult {
        file: manifest_file::display_name(path),
        namespace: manifest_file::namespace_of(&machine).unwrap_or(namespace).to_owned(),
        name: manifest_file::name_of(&machine),
        accepted: findings.iter().all(|finding| finding.enforced_by == CONTROLLER),
        findings,
    }
}

const CONTROLLER: &str = "controller";

fn finding(error: &ManifestError) -> Finding {
    let enforced_by = match error {
        ManifestError::WrongKind { .. } | ManifestError::Metadata(_) | ManifestError::Schema(_) => "schema",
        ManifestError::Rule(error) => match error.enforced_by {
            EnforcedBy::Policy => "policy",
            EnforcedBy::Controller => CONTROLLER,
        },
    };
    Finding { enforced_by, field: error.field().to_owned(), message: error.to_string() }
}

fn write_text(out: &mut dyn Write, results: &[LintResult]) -> io::Result<()> {
    for LintResult { file, namespace, name, accepted, findings } in results {
        let result = match (accepted, findings.is_empty()) {
            (false, _) => "rejected",
            (true, true) => "accepted",
            (true, false) => "accepted, but the controller reports an error",
        };
        writeln!(out, "{}: {result}", printable(&format!("{file}: {namespace}/{name}")))?;
        for Finding { enforced_by, message, .. } in findings {
            writeln!(out, "  {enforced_by:10}  {}", printable(message))?;
        }
    }
    Ok(())
}
