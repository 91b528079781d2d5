//! Manifests, Helm chart and monitoring: they render, are consistent, install on a real API server, and grant no more
//! permissions than necessary.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agent_scope;
mod chart;
mod install;
mod install_docs;
mod manifests;
mod monitoring;
mod permissions;
mod render;
