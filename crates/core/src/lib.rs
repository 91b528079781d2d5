//! The pure heart of 5-Spot: it decides, and others act. No client, no clock, no environment.
//!
//! - [`document`] judges a manifest offline: the schema first, then [`mod@validate`], as an API server would.
//! - [`mod@validate`] turns a spec that anybody may have written into a [`ValidSpec`](validate::ValidSpec), once.

pub mod document;
pub mod schema;
pub mod validate;
