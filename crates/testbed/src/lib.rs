//! The real thing, started from Rust: a Kubernetes control plane, the Cluster API core manager, KWOK, and a simulated
//! provider that cannot do what only Cluster API may.
//!
//! ```no_run
//! # async fn example() {
//! let testbed = fivespot_testbed::shared().await;
//! let test = testbed.namespace("a machine joins").await;
//! testbed.cluster(&test, "edge").await.unwrap();
//! // create a Machine with `test.client`, then:
//! fivespot_testbed::wait::eventually("the Machine runs", std::time::Duration::from_secs(60), async || {
//!     true
//! })
//! .await;
//! # }
//! ```
//!
//! The first run builds the programs from the Go modules in `crates/testbed/go`, which takes minutes and needs Go; later runs
//! find them in the cache directory (see [`artifacts`]). Every server is a child of this process, listens on loopback
//! only, writes its log into the run directory (see [`run_dir`]) and dies with this process, however that dies (see
//! [`process`]).

mod access;
mod account;
pub mod artifacts;
pub mod audit;
pub mod capi;
mod certificates;
mod cluster;
pub mod control_plane;
mod evidence;
pub mod fault_proxy;
pub mod kwok;
mod manifest;
mod namespace;
pub mod node;
mod ports;
pub mod process;
mod product;
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
pub use node::RealNode;
pub use testbed::{Fleet, Testbed, shared, shared_control_plane, shared_with_crd};
