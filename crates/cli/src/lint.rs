//! `kubectl 5spot lint`: what an API server would say.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use fivespot_cli_support::Failure;
use fivespot_validation::document::{self, DocumentError};
use fivespot_validation::names;
use fivespot_validation::validate::Judge;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde_json::Value;

use crate::manifest;
use crate::output::{Format, print, print_json};

/// Judge manifests as a cluster would, with no cluster: schema, admission policy and schedule
///
/// Says all that is wrong, each with its judge: the schema and the policy refuse an object, the controller leaves one that is
/// stored in Error. What is no ScheduledMachine is passed over. Exit code 1 if anything is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl 5spot lint -f machine.yaml
  kustomize build . | kubectl 5spot lint -f -
  kubectl 5spot lint -f desks.yaml -f labs.yaml -n workstations -o json")]
pub(crate) struct Arguments {
    /// Read ScheduledMachines from this file ("-": standard input); may be given several times
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Namespace of those that name none
    #[arg(short, long, default_value = document::DEFAULT_NAMESPACE)]
    namespace: String,

    /// For people or for scripts
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What is said of one manifest.
#[derive(Debug, Serialize)]
struct Verdict {
    file: String,
    namespace: String,
    name: String,
    /// Whether an API server would store it.
    accepted: bool,
    findings: Vec<Finding>,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
struct Finding {
    judge: &'static str,
    field: String,
    message: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !names::is_dns_label(&arguments.namespace) {
        let namespace = &arguments.namespace;
        return Err(Failure::bad_input(format!("--namespace: {namespace:?} cannot be the name of a namespace")));
    }
    let crd = fivespot_api::crd();
    let mut verdicts = Vec::new();
    for path in &arguments.filename {
        let machines = manifest::machines(path)?;
        verdicts.extend(machines.into_iter().map(|it| judge(&crd, path, it, &arguments.namespace)));
    }
    match arguments.output {
        Format::Json => print_json(&verdicts)?,
        Format::Text => print(|out| write_text(out, &verdicts))?,
    }
    let wrong = verdicts.iter().filter(|it| !it.findings.is_empty()).count();
    if wrong == 0 {
        return Ok(());
    }
    let all = verdicts.len();
    Err(Failure::Failed(format!("{wrong} of {all} ScheduledMachine{} cannot be used", if all == 1 { "" } else { "s" })))
}

fn judge(crd: &CustomResourceDefinition, path: &Path, mut manifest: Value, namespace: &str) -> Verdict {
    if manifest::namespace_of(&manifest).is_none() && manifest["metadata"].is_object() {
        manifest["metadata"]["namespace"] = namespace.into();
    }
    let errors = document::judge(crd, &manifest).err().unwrap_or_default();
    let is_the_controllers =
        |it: &DocumentError| matches!(it, DocumentError::Rule(it) if it.judge == Judge::Controller);
    Verdict {
        file: manifest::told(path),
        namespace: manifest::namespace_of(&manifest).unwrap_or(namespace).to_owned(),
        name: manifest::name_of(&manifest),
        accepted: errors.iter().all(is_the_controllers),
        findings: errors.iter().map(finding).collect(),
    }
}

fn finding(error: &DocumentError) -> Finding {
    let judge = match error {
        DocumentError::NotOurs { .. } | DocumentError::Metadata { .. } | DocumentError::Schema(_) => "schema",
        DocumentError::Rule(error) => match error.judge {
            Judge::Policy => "policy",
            Judge::Controller => "controller",
        },
    };
    Finding { judge, field: error.field().to_owned(), message: error.to_string() }
}

/// Without what a terminal would obey: a manifest may be anybody's.
fn printable(text: &str) -> String {
    let escaped = |it: char| if it.is_control() { it.escape_default().to_string() } else { it.to_string() };
    text.chars().map(escaped).collect()
}

fn write_text(out: &mut dyn Write, verdicts: &[Verdict]) -> io::Result<()> {
    for Verdict { file, namespace, name, accepted, findings } in verdicts {
        let told = match (accepted, findings.is_empty()) {
            (false, _) => "refused",
            (true, true) => "accepted",
            (true, false) => "stored, and then in Error",
        };
        writeln!(out, "{file}: {}: {told}", printable(&format!("{namespace}/{name}")))?;
        for Finding { judge, message, .. } in findings {
            writeln!(out, "  {judge:10}  {}", printable(message))?;
        }
    }
    Ok(())
}
