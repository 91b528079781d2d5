//! Decides what the controller does for one ScheduledMachine, as data. Pure: no client, no clock, no environment.
//!
//! ```text
//! input (observed, spec, now) -> goal -> plan (steps) -> status and events
//! ```
//!
//! - [`input`]: everything one decision depends on; [`observed`] is the part that was read from API servers.
//! - [`decide`]: from input to goal to [`plan`], or to the read that is missing.
//! - [`intent`]: which provider objects the status or the recorded intent names.
//! - [`children`]: names and manifests of the Machine, the bootstrap and the infrastructure object.
//! - [`drain`], [`taints`], [`agent_config`]: rules for pods, Node taints and the reclaim agent's configuration.
//! - [`status`]: what the status says afterwards, and which of its transitions are reported as [`events`].
//! - [`shards`]: which of several instances acts on an object.
//! - [`retry`]: when a failed step is retried; `machine_failure`: when a failed Machine is.

pub mod agent_config;
pub mod children;
pub mod decide;
pub mod drain;
pub mod events;
pub mod input;
pub mod intent;
mod machine_failure;
pub mod observed;
pub mod plan;
mod reclaim_message;
pub mod retry;
pub mod shards;
pub mod status;
pub mod taints;
