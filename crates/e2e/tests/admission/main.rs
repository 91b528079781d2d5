//! The shipped admission policy on a real API server: the corpus, hostile input, objects that are older than the policy,
//! the largest possible objects, and a malicious tenant.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod corpus;
mod cost;
mod env;
mod hostile_input;
mod old_objects;
mod requests;
mod tenants;
mod type_check;
