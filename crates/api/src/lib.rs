//! Types of the API group `5spot.finos.org`: the ScheduledMachine, its status and conditions, and every label, annotation
//! and other name that 5-Spot shares with users and other components.
//!
//! # Guarantees
//!
//! * [`crd()`] is derived from the types, so the schema and the types cannot disagree.
//! * The types read every object that the schema admits, and write it back without loss. Optional fields that are not set
//!   are omitted, never `null`.
//! * The crate depends on `kube-core` and `kube-derive` alone, so crates built on it cannot reach a Kubernetes client.
//!
//! # Field descriptions
//!
//! Doc comments on the fields of [`ScheduledMachineSpec`] and [`ScheduledMachineStatus`] become the descriptions in the CRD,
//! which `kubectl explain scheduledmachine` prints. They address users, and start with the field's JSON name, as in Cluster
//! API. Run `cargo xtask gen` after changing one.

#![warn(missing_docs)]

pub mod conditions;
mod crd;
pub mod defaults;
pub mod keys;
mod spec;
mod status;

pub use crd::crd;
pub use spec::{
    InlineObject, MachineTemplate, NodeTaint, Override, ScheduleSpec, ScheduledMachine, ScheduledMachineSpec,
    TaintEffect,
};
pub use status::{MachineFailure, NodeReference, ObjectReference, Phase, ReclaimStatus, ScheduledMachineStatus};
