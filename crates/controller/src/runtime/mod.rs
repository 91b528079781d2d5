//! What surrounds a reconcile: the work queue, caches, watches, requests, events, metrics, health and shards.
//!
//! Nothing here depends on `capi`, `clusters` or `reconciler`.

pub(crate) mod backoff;
pub(crate) mod cache;
pub(crate) mod client;
pub(crate) mod error_class;
pub(crate) mod events;
pub(crate) mod fair_queue;
pub(crate) mod health;
pub(crate) mod http_server;
mod large_responses;
pub(crate) mod leases;
pub(crate) mod metrics;
mod object_limits;
pub(crate) mod panics;
pub(crate) mod permits;
pub(crate) mod rate_limit;
pub(crate) mod reconcile_id;
pub(crate) mod request;
mod resolver;
pub(crate) mod response_limits;
pub(crate) mod shards;
pub(crate) mod watches;
pub(crate) mod workqueue;
