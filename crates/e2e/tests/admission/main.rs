//! The admission policy as it is shipped, on a real API server: the corpus, hostile texts, objects that are older than the
//! policy, the largest objects there can be, and a tenant who tries.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod corpus;
mod cost;
mod installed;
mod old_objects;
mod requests;
mod tenants;
mod texts;
mod type_check;
