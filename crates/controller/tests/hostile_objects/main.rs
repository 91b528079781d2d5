//! Objects that a tenant may store and that are hard to decode or large: none of them may affect another object.
//!
//! In a binary of its own, because the controllers watch all namespaces.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod decoding;
mod memory;
mod raw;

/// The tests run one after the other: each runs a controller of all namespaces.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
