//! Starts real servers for tests: a Kubernetes control plane, the Cluster API core manager, KWOK, and a simulated
//! provider that has no permission to write Cluster API objects.
//!
//! ```no_run
//! # async fn example() {
//! let testbed = fivespot_testbed::shared().await;
//! let test = testbed.namespace("a machine joins").await;
//! testbed.cluster(&test, "edge").await.unwrap();
//! // create a Machine with `test.client`, then:
//! fivespot_testbed::wait::eventually("the Machine is running", std::time::Duration::from_secs(60), async || {
//!     true
//! })
//! .await;
//! # }
//! ```
//!
//! The first run builds the servers from the Go modules in `crates/testbed/go`, which takes minutes and needs Go; later
//! runs find them in the cache directory (see [`artifacts`]). Every server is a child of this process, listens on
//! loopback only, logs into the run directory (see [`run_dir`]) and is killed when this process dies (see [`process`]).
#![allow(missing_docs, reason = "a test library: only what the name does not say is documented")]

mod access;
mod account;
pub mod artifacts;
pub mod audit;
pub mod capi;
mod certificates;
mod cluster;
pub mod control_plane;
mod diagnostics;
pub mod fault_proxy;
pub mod hostile_server;
mod install;
pub mod kwok;
mod manifest;
mod namespace;
pub mod network;
pub mod node;
pub mod ports;
pub mod process;
pub mod provider;
mod readiness;
pub mod redirector;
pub mod run_dir;
mod testbed;
mod tls;
mod token;
pub mod wait;

pub use access::Access;
pub use account::allow;
pub use control_plane::{ControlPlane, ControlPlaneOptions, StartError};
pub use fault_proxy::FaultProxy;
pub use namespace::TestNamespace;
pub use network::NetworkNamespace;
pub use node::RealNode;
pub use testbed::{Fleet, Testbed, shared, shared_control_plane, shared_with_crd};

/// Set by `cargo xtask test --long`.
pub const LONG: &str = "FIVESPOT_LONG";

/// Whether tests of large numbers run with the numbers that are promised, instead of what they can do quickly.
pub fn is_long() -> bool {
    std::env::var_os(LONG).is_some()
}
