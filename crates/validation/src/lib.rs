//! Validation of ScheduledMachines: one set of rules for the admission policy, the controller and `kubectl 5spot lint`.
//! Pure: no client, no clock, no environment.
//!
//! - [`mod@validate`] turns a spec into a [`ValidSpec`](validate::ValidSpec), or reports every error in it.
//! - [`inline_spec`] summarizes the specs of the inline objects, which are not kept.
//! - [`admission`] generates the admission policy of the API server from the same rules.
//! - [`rules`] contains the message of every rule, which both of them use.
//! - [`schema`] validates a manifest against the schema of the CRD.
//! - [`manifest`] validates a manifest offline like an API server: first the schema, then the rules.
//! - [`names`] checks the format of Kubernetes names.

pub mod admission;
pub mod inline_spec;
pub mod manifest;
pub mod names;
mod patterns;
pub mod rules;
pub mod schema;
mod suggestion;
pub mod validate;
