//! Validation of ScheduledMachines: one set of rules for the admission policy, the controller and `kubectl 5spot lint`.
//! Pure: no client, no clock, no environment.
//!
//! - [`document`] validates a manifest offline: the schema first, then [`mod@validate`], as an API server would.
//! - [`mod@validate`] turns a spec into a [`ValidSpec`](validate::ValidSpec), once.
//! - [`admission`] is the admission policy of the API server, generated from the same rules.
//! - [`names`] has the forms that Kubernetes requires of names.
//! - [`schema`] validates a manifest against the schema of the CRD.

pub mod admission;
pub mod document;
pub mod names;
pub mod schema;
pub mod validate;
