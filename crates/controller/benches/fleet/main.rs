//! Fleets of 1,000 and 10,000 objects: from creation to phase Active, windows that open and close, a quiet minute, memory, and
//! the failure of an instance.
//!
//! `cargo bench -p fivespot-controller --bench fleet -- creation boundary failover 1000 10000`; without names, all parts are
//! measured. Times and counts come from the audit log and from the metrics of the controller, so that the measurement adds no
//! load: listing 10,000 objects would be one. Each measurement has a control plane of its own, and each part is measured with
//! a bare client that sends the same writes as well.
//!
//! Prints a table, and writes the figures to `target/bench/fleet.json`, from which `cargo xtask bench --plots` draws.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

mod boundary;
mod creation;
mod env;
mod failover;
#[path = "../../tests/fixtures/mod.rs"]
mod fixtures;

use std::path::Path;

use serde_json::{Value, json};

const DEFAULT_SIZES: [usize; 2] = [1000, 10_000];

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let sizes: Vec<usize> = args.iter().filter_map(|it| it.parse().ok()).collect();
    let sizes = if sizes.is_empty() { DEFAULT_SIZES.to_vec() } else { sizes };
    let parts: Vec<&str> = args.iter().map(String::as_str).filter(|it| it.parse::<usize>().is_err()).collect();
    let is_selected = |part: &str| parts.is_empty() || parts.contains(&part);
    for objects in sizes {
        if is_selected("creation") {
            store("creation", &Box::pin(creation::measure(objects)).await);
        }
        if is_selected("boundary") {
            store("boundary", &Box::pin(boundary::measure(objects)).await);
        }
    }
    if is_selected("failover") {
        store("failover", &Box::pin(failover::measure()).await);
    }
}

/// Adds the figures of a part to those of earlier parts and sizes.
fn store(part: &str, figures: &Value) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("fleet.json");
    let stored = std::fs::read(&path).ok().and_then(|it| serde_json::from_slice(&it).ok());
    let mut all: Value = stored.unwrap_or_else(|| json!({}));
    let size = figures["objects"].to_string();
    all[part][size] = figures.clone();
    std::fs::write(&path, serde_json::to_string_pretty(&all).unwrap()).unwrap();
}
