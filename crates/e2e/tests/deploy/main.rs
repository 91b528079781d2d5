//! What an operator installs: it renders, it is what it says, it installs on a real API server, and it permits no more than
//! it must.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod chart;
mod guide;
mod install;
mod manifests;
mod monitoring;
mod permissions;
mod rendered;
