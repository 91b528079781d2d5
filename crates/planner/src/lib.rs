//! The pure heart of 5-Spot: it decides, and others act. No client, no clock, no environment.
//!
//! - [`decide`] turns what is asked for and what is there into a [`plan`].
//! - [`children`] names and builds the objects a machine is made of.
//! - [`status`] folds what was seen and done into the status, and [`event`] tells what changed.
//! - [`patience`] says when to try again what failed.
//! - [`agent`] says what the reclaim agent on a Node is told.
//! - [`drain`] says which pods have to leave before a machine may go.

pub mod agent;
pub mod children;
pub mod decide;
pub mod drain;
pub mod event;
pub mod intent;
pub mod observed;
pub mod patience;
pub mod plan;
pub mod status;
pub mod taints;
