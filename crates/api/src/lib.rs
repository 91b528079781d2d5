//! The wire contract of 5-Spot: what users write, what the controller reports, and the names others rely on.
//!
//! The doc comments on the types are what `kubectl explain scheduledmachine` prints, so they speak to its users.
//! There is no client here: this crate depends on the client-less half of kube, and so does everything pure above it.

#![warn(missing_docs)]

pub mod conditions;
mod crd;
pub mod keys;
mod spec;
mod status;
mod values;

pub use crd::crd;
pub use spec::{
    InlineObject, MachineTemplate, NodeTaint, Override, ScheduleSpec, ScheduledMachine, ScheduledMachineSpec,
    TaintEffect,
};
pub use status::{NodeReference, ObjectReference, Phase, ReclaimStatus, ScheduledMachineStatus};
