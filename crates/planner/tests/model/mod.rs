//! One object, its children, a Node with a pod, and everybody who acts on them one request at a time.
//!
//! The controller sees the object, the Machine and the Node through caches that lag behind, carries out a plan request by
//! request, and can die between any two. Time is three instants: a shutdown that begins at one is past its drain at the
//! next and past all of its time at the one after.
//!
//! What is taken for granted of whoever carries out a plan:
//!
//! - A pass never decides from an object older than what this process has written of it: where an answer was lost, the
//!   object is read first.
//! - A Node in the cache that is an earlier Machine's is taken for one that was not seen.
//! - What was somebody's when it was looked at may have another owner when a request for it arrives: a uid is named, and
//!   it stays the same.
//! - Lists that are carried out side by side are sent one after the other here, and the first failure ends the pass.

mod mistake;
mod observation;
mod others;
mod pass;
mod people;
mod request;
mod rest;
mod right;
mod rules;
mod server;
mod state;
mod steps;
mod trouble;
mod view;

pub(crate) use mistake::Mistake;
pub(crate) use rest::ends_well;
pub(crate) use rules::Rule;
pub(crate) use state::{Budget, World};
pub(crate) use steps::Step;
pub(crate) use trouble::Trouble;
