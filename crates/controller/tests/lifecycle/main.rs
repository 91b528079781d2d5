//! The lifecycle of machines on a real API server with the real Cluster API, under the RBAC that is shipped.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod agent_rollout;
mod capi_versions;
mod clock;
mod cluster_state;
mod dead_connections;
mod deletion;
mod drain;
mod etcd_restore;
mod external_edits;
mod hardened_overlay;
mod http_limits;
mod kubeconfig_errors;
mod machine_failures;
mod metrics;
mod name_conflicts;
mod observability;
mod overload;
mod phases;
mod process;
mod readiness;
mod reclaim;
mod rejected_pods;
mod spec_changes;
mod taints;
mod tenancy;
mod two_controllers;
mod window;
mod workload_clusters;
mod write_conflicts;
